import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { stringify } from "yaml";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import {
  chart,
  helm,
  kubeconform,
  kubernetesVersions,
  noHelm,
  noKubeconform,
  runProgram,
  template,
  valuesFiles,
} from "./test-helm.ts";

/** Checks the chart with kubeconform and kube-score from `.ci/kubernetes-tools`. */

const { CLIPSTACK_KUBE_SCORE: kubeScore = "kube-score" } = process.env;
const noKubeScore =
  noHelm || (runProgram(kubeScore, ["version"]).code === 0 ? "" : `no ${kubeScore}`);

const tokenizerOf = (tower: string) =>
  tower === "siglip2_base_224_text" ? { tokenizer: { sha256: "a".repeat(64) } } : {};

/** Values for features that the values files do not enable. */
const more: Readonly<Record<string, ChartValues>> = {
  "everything on a GPU": {
    imagePullSecrets: [{ name: "registry" }],
    model: { weights: "init", sha256: "a".repeat(64), init: { url: "https://models.example/m" } },
    embed: {
      accelerator: "gpu",
      auth: { existingSecret: "keys" },
      priorityClassName: "high",
      affinity: { podAntiAffinity: {} },
      extraEnv: [{ name: "LOG_LEVEL", value: "debug" }],
      service: { type: "LoadBalancer", annotations: { a: "b" } },
      tls: { secretName: "embed-tls" },
    },
    ingress: {
      enabled: true,
      className: "nginx",
      host: "embed.example.com",
      tlsSecretName: "public-tls",
      annotations: { "cert-manager.io/cluster-issuer": "letsencrypt" },
    },
    httpRoute: {
      enabled: true,
      parentRefs: [{ name: "public", namespace: "gateways", sectionName: "https", port: 443 }],
      hostnames: ["embed.example.com"],
      annotations: { a: "b" },
    },
    grpcRoute: { enabled: true, parentRefs: [{ name: "public", sectionName: "grpcs" }] },
    triton: {
      enabled: true,
      allowUnauthenticated: true,
      backend: "tensorrt",
      gpus: 4,
      engineCache: { enabled: true, storageClass: "nfs", accessMode: "ReadWriteMany" },
      autoscaling: { enabled: true, source: "prometheus-adapter" },
      podAnnotations: { a: "b" },
      extraEnv: [{ name: "A", valueFrom: { fieldRef: { fieldPath: "status.hostIP" } } }],
    },
    quota: { enabled: true, hard: { "requests.nvidia.com/gpu": 18, pods: 20 } },
    limitRange: { enabled: true, max: { cpu: 8 } },
    networkPolicy: { egress: [{ to: [{ ipBlock: { cidr: "10.0.0.0/8" } }] }] },
    serviceMonitor: { enabled: true, labels: { release: "prometheus" } },
    prometheusRule: { enabled: true },
    monitoring: { dashboards: { enabled: true } },
  },
  "a gateway behind a load balancer, GPUs by claims, additional containers": {
    embed: {
      backend: "triton",
      auth: { existingSecret: "keys" },
      allowPlaintext: true,
      queueName: "team",
      service: {
        type: "LoadBalancer",
        loadBalancerClass: "service.k8s.aws/nlb",
        loadBalancerSourceRanges: ["10.0.0.0/8", "fd00::/8"],
        externalTrafficPolicy: "Local",
        ipFamilyPolicy: "PreferDualStack",
      },
      extraVolumes: [{ name: "ca", configMap: { name: "ca" } }],
      extraVolumeMounts: [{ name: "ca", mountPath: "/etc/ca", readOnly: true }],
      extraContainers: [
        {
          name: "proxy",
          image: "registry.example/proxy:1.0",
          imagePullPolicy: "Always",
          resources: {
            requests: { cpu: "10m", memory: "16Mi" },
            limits: { cpu: "100m", memory: "32Mi" },
          },
          securityContext: {
            runAsNonRoot: true,
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          },
        },
      ],
    },
    triton: {
      enabled: true,
      image: { repository: "registry.example/triton" },
      resourceClaimTemplate: "one-gpu",
      extraArgs: ["--log-verbose=1"],
    },
  },
  "several models, downloaded": {
    models: [
      "openclip-vit-b32",
      "dinov2-small",
      { name: "siglip2-base-224", modalities: ["text"] },
    ],
    model: {
      weights: "init",
      init: { existingSecret: "urls" },
      towers: Object.fromEntries(
        ["openclip_vit_b32", "openclip_vit_b32_text", "dinov2_small", "siglip2_base_224_text"].map(
          (tower) => [tower, { sha256: "a".repeat(64), ...tokenizerOf(tower) }],
        ),
      ),
    },
    embed: { backend: "triton" },
    triton: { enabled: true, backend: "tensorrt" },
  },
  "a bulk job on CPUs": {
    embed: { enabled: false },
    model: { weights: "pvc", pvc: { claimName: "w" } },
    bulk: {
      enabled: true,
      job: "s3://vectors/2026",
      queueName: "team",
      credentialsSecret: "bucket",
      extraEnv: [{ name: "AWS_REGION", value: "us-east-1" }],
    },
  },
  "a nightly bulk job on GPUs": {
    embed: { enabled: false },
    model: { weights: "init", sha256: "a".repeat(64), init: { url: "https://models.example/m" } },
    triton: { backend: "tensorrt" },
    bulk: {
      enabled: true,
      job: "s3://vectors/2026",
      source: "s3://photos/2026",
      accelerator: "gpu",
      schedule: "0 3 * * *",
      timeZone: "Europe/Berlin",
      usdPerWorkerHour: 0.35,
      tolerations: [{ key: "spot", operator: "Exists" }],
    },
  },
  "weights on a volume, Triton by CPU": {
    model: { weights: "pvc", sha256: "a".repeat(64), pvc: { claimName: "w", subPath: "a/b" } },
    embed: { backend: "triton", budget: { minAvailable: 1 } },
    triton: {
      enabled: true,
      server: "emulator",
      gpus: 0,
      autoscaling: { enabled: true, metric: "cpu" },
    },
  },
};

/** Objects of a values file or of one of `more`. */
function yamlOf(name: string): string {
  const values = more[name];
  const objects = values === undefined ? template({}, { file: name }) : template(values);
  return objects.map((it) => `---\n${stringify(it, { aliasDuplicateObjects: false })}`).join("");
}
const names = [...valuesFiles, ...Object.keys(more)];

describe.skipIf(noHelm !== "")(`helm lint${noHelm && ` (skipped: ${noHelm})`}`, () => {
  test.each(valuesFiles)("passes with %s.yaml", (file) => {
    const { code, stdout, stderr } = helm(
      ...["lint", "--strict", chart, "--values", join(chart, `${file}.yaml`)],
      ...["--kube-version", "1.33.0"],
    );
    expect(code, `${stdout}${stderr}`).toBe(0);
    expect(stdout).not.toMatch(/\[(WARNING|ERROR)\]/);
  });
});

describe.skipIf(noKubeconform !== "")(
  `kubeconform${noKubeconform && ` (skipped: ${noKubeconform})`}`,
  () => {
    const versions = noKubeconform === "" ? kubernetesVersions() : ["no version"];

    test("has schemas of several Kubernetes versions", () => {
      expect(versions.length).toBeGreaterThan(1);
    });

    describe.each(versions)("of Kubernetes %s", (version) => {
      test.each(names)("accepts all objects of %s", (name) => {
        const { code, stdout, stderr } = kubeconform(yamlOf(name), version);
        expect(code, `${stdout}${stderr}`).toBe(0);
        expect(stdout).toMatch(/Invalid: 0, Errors: 0, Skipped: 0/);
      });
    });

    test("finds an unknown field", () => {
      const { code, stdout } = kubeconform(
        yamlOf("values").replace("enableServiceLinks", "enableServiceLink"),
        versions[0] ?? "",
      );
      expect(code).toBe(1);
      expect(stdout).toContain("enableServiceLink");
    });
  },
);

/** Ignored checks of kube-score with the reason. */
const leftOut: Readonly<Record<string, string>> = {
  "container-image-pull-policy":
    "images have a version or a digest, and those of a kind cluster are loaded into it",
  "container-security-context-user-group-id":
    "all images, including NVIDIA's, run as their own user 1000; a higher id owns no file in them",
  "container-ephemeral-storage-request-and-limit":
    "the root is read-only; all writes go to memory or to a volume with a limit",
};

describe.skipIf(noKubeScore !== "")(
  `kube-score${noKubeScore && ` (skipped: ${noKubeScore})`}`,
  () => {
    const score = (yaml: string) =>
      runProgram(
        kubeScore,
        [
          ...["score", "-", "--output-format", "ci"],
          ...Object.keys(leftOut).flatMap((name) => ["--ignore-test", name]),
        ],
        yaml,
      ).stdout.split("\n");

    test.each(names)("finds no critical issue in %s", (name) => {
      const lines = score(yamlOf(name));
      expect(lines.filter((line) => line.startsWith("[OK]")).length).toBeGreaterThan(10);
      expect(lines.filter((line) => line.startsWith("[CRITICAL]"))).toEqual([]);
    });

    test("finds a writable root", () => {
      const lines = score(
        yamlOf("values").replaceAll(
          "readOnlyRootFilesystem: true",
          "readOnlyRootFilesystem: false",
        ),
      );
      expect(lines.join("\n")).toMatch(/\[CRITICAL\].*writable root filesystem/);
    });
  },
);
