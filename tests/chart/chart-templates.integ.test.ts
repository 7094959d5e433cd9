import { describe, expect, test } from "vitest";
import { readModelConfig } from "../../client/triton/model-config.ts";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { Testing } from "../../constructs/terraform/cdktf.ts";
import { checkModelConfig } from "../../contract/model-config-check.ts";
import { catalogueSpecs } from "../../contract/models/index.ts";
import { labelNames } from "../../contract/pods.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import { tracingEnv } from "../../contract/server/tracing.ts";
import {
  openTelemetryOf,
  otlpTraceUrl,
  parseTritonArgs,
  restrictControl,
} from "../../contract/triton-flags.ts";
import { readFetchWeightsArguments } from "../../inference-image/jobs/fetch-weights.ts";
import { MultiGpuStack } from "../../stacks/multi-gpu.ts";
import { parseSettings } from "../../stacks/settings/settings.ts";
import {
  noHelm,
  objectOf,
  rejectionOf,
  type TestObject,
  template,
  tryTemplate,
  valuesFiles,
} from "./test-helm.ts";

const sha256 = "a".repeat(64);
const digest = `sha256:${sha256}`;

/** Triton with the weights in its image. */
const own = { enabled: true, image: { repository: "registry.example/triton" } } as const;

/** Gateway and Triton servers on the CPU. */
const emulator = {
  embed: { backend: "triton" },
  triton: { enabled: true, server: "emulator", gpus: 0 },
} as const satisfies ChartValues;

/** Gateway and Triton servers with TensorRT and one GPU each. */
const tensorrt = {
  embed: { backend: "triton" },
  triton: { ...own, backend: "tensorrt" },
} as const satisfies ChartValues;

const fetched = {
  weights: "init",
  sha256,
  init: { url: "https://models.example:8443/model.onnx" },
} as const;

const podsOf = (objects: readonly TestObject[]) =>
  objects
    .filter(({ kind }) => kind === "Deployment" || kind === "Pod")
    .map((it) => ({
      name: it.metadata.name,
      spec: it.kind === "Pod" ? it.spec : it.spec.template.spec,
    }));
const deployment = (values: ChartValues, component: "embed" | "triton"): TestObject =>
  objectOf(template(values), "Deployment", `clipstack-${component}`);
const podOf = (values: ChartValues, component: "embed" | "triton") =>
  deployment(values, component).spec.template.spec;
const tritonArgs = (values: ChartValues) => {
  const [program, ...args] = podOf(values, "triton").containers[0].args as string[];
  expect(program).toBe("tritonserver");
  return parseTritonArgs(args);
};
/** Configuration of the default model in a synthesized stack `multi-gpu`. */
function configOnHost(gpus: number, key: "tritonOnnx" | "tritonTrt"): string {
  const host = gpus === 0 ? "accelerator: cpu" : `host: { count: ${gpus} }`;
  const settings = parseSettings("multi-gpu", "test", host);
  const stack = new MultiGpuStack(Testing.app(), "host", settings);
  const { docker_container } = JSON.parse(Testing.synth(stack)).resource;
  const id = key === "tritonOnnx" ? "triton-onnx_configuration" : "triton-trt_configuration";
  const [, container] = Object.entries<{ upload: { content: string }[] }>(docker_container).find(
    ([name]) => name.startsWith(id),
  )!;
  return container.upload[0]!.content;
}
/** Fields of a model configuration without comments and the name of cached engines. */
const fieldsOf = (text: string) =>
  text
    .split("\n")
    .filter((line) => line !== "" && !/^#|trt_engine_cache_prefix/.test(line))
    .join("\n");
const envOf = (values: ChartValues): Record<string, string> =>
  Object.fromEntries(
    podOf(values, "embed").containers[0].env.map(
      ({ name, value }: { name: string; value?: string }) => [name, value ?? "from elsewhere"],
    ),
  );

describe.skipIf(noHelm !== "")(`Helm chart${noHelm && ` (skipped: ${noHelm})`}`, () => {
  test("claims the GPUs of a pod instead of requesting them", () => {
    const pod = podOf({ triton: { ...own, gpus: 2, resourceClaimTemplate: "two-gpus" } }, "triton");
    expect(pod.resourceClaims).toEqual([{ name: "gpus", resourceClaimTemplateName: "two-gpus" }]);
    const { resources } = pod.containers[0];
    expect(resources.claims).toEqual([{ name: "gpus" }]);
    expect(Object.keys(resources.limits)).toEqual(["cpu", "memory"]);
  });

  test("Kueue admits the pods of a Deployment with its label", () => {
    const { metadata, spec } = deployment({ embed: { queueName: "team" } }, "embed");
    expect(metadata.labels?.["kueue.x-k8s.io/queue-name"]).toBe("team");
    expect(spec.selector.matchLabels).not.toHaveProperty("kueue.x-k8s.io/queue-name");
  });

  test("the embed server listens on IPv6 too with a dual-stack Service", () => {
    expect(envOf({ embed: { service: { ipFamilyPolicy: "PreferDualStack" } } })["HOST"]).toBe("::");
    expect(envOf({})["HOST"]).toBeUndefined();
  });

  test("the embed server and Triton export traces to a collector, and may connect to it", () => {
    const endpoint = "http://otel.monitoring:4318";
    const values = { ...emulator, tracing: { endpoint } };
    expect(envOf(values)).toMatchObject(tracingEnv({ endpoint, ratio: 0.01 }, "clipstack-embed"));
    expect(openTelemetryOf(tritonArgs(values))).toEqual({
      url: otlpTraceUrl(endpoint),
      service: "clipstack-triton",
      rate: 0,
    });
    for (const component of ["embed", "triton"]) {
      const policy = objectOf(template(values), "NetworkPolicy", `clipstack-${component}`);
      expect(policy.spec.egress).toContainEqual({ ports: [{ protocol: "TCP", port: 4318 }] });
    }
  });

  test("Triton's own arguments precede those of the values", () => {
    const { args } = podOf({ triton: { ...own, extraArgs: ["--log-verbose=1"] } }, "triton")
      .containers[0];
    expect(args.at(-1)).toBe("--log-verbose=1");
  });

  describe.each(valuesFiles)("with %s.yaml", (file) => {
    const objects = noHelm === "" ? template({}, { file }) : [];

    test("every object has the recommended labels, and its namespace", () => {
      for (const { kind, metadata } of objects) {
        expect(metadata, kind).toMatchObject({
          namespace: "clipstack",
          labels: {
            [labelNames.name]: "clipstack",
            [labelNames.instance]: "clipstack",
            [labelNames.managedBy]: "Helm",
            [labelNames.version]: expect.stringMatching(/^\d/),
            "helm.sh/chart": expect.stringMatching(/^clipstack-\d/),
          },
        });
      }
    });

    test("every selector selects the pods of its component only", () => {
      const pods = objects.filter(({ kind }) => kind === "Deployment");
      expect(pods.length).toBeGreaterThan(0);
      for (const { metadata, spec } of pods) {
        expect(spec.template.metadata.labels).toMatchObject(spec.selector.matchLabels);
        const component = metadata.labels?.[labelNames.component];
        expect(metadata.name).toBe(`clipstack-${component}`);
        expect(spec.selector.matchLabels).toEqual({
          [labelNames.name]: "clipstack",
          [labelNames.instance]: "clipstack",
          [labelNames.component]: component,
        });
      }
    });

    test("every pod meets the Pod Security Standard 'restricted' and has a read-only root", () => {
      for (const { name, spec } of podsOf(objects)) {
        expect(spec, name).toMatchObject({
          automountServiceAccountToken: false,
          securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
        });
        for (const container of [...spec.containers, ...(spec.initContainers ?? [])]) {
          expect(container.securityContext, `${name} ${container.name}`).toEqual({
            runAsNonRoot: true,
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          });
          expect(container.resources.limits, `${name} ${container.name}`).toMatchObject({
            cpu: expect.anything(),
            memory: expect.anything(),
          });
        }
      }
    });

    test("a Deployment with an autoscaler has no replicas", () => {
      const scaled = objects
        .filter(({ kind }) => kind === "HorizontalPodAutoscaler" || kind === "ScaledObject")
        .map(({ spec }) => spec.scaleTargetRef.name);
      for (const { metadata, spec } of objects.filter(({ kind }) => kind === "Deployment")) {
        expect("replicas" in spec, metadata.name).toBe(!scaled.includes(metadata.name));
      }
    });

    test("the embed server accepts its environment", () => {
      const { spec } = objectOf(objects, "Deployment", "clipstack-embed");
      const env = Object.fromEntries(
        spec.template.spec.containers[0].env.map(
          ({ name, value }: { name: string; value: string }) => [name, value],
        ),
      );
      expect(Object.keys(serverEnv.shape)).toEqual(expect.arrayContaining(Object.keys(env)));
      expect(serverEnv.parse(env)).toBeDefined();
    });
  });

  describe("embed server", () => {
    test("has one thread per whole core of its CPU limit", () => {
      const threads = (cpu: string | number) =>
        envOf({ embed: { resources: { limits: { cpu, memory: "1Gi" } } } }).INTRA_OP_THREADS;
      expect(["500m", "1", "2500m", 4, "3.9"].map(threads)).toEqual(["1", "1", "2", "4", "3"]);
    });

    test("has the thread count of the node without a CPU limit", () => {
      // null removes a default
      const unlimited = { limits: { cpu: null, memory: "1Gi" } } as unknown as object;
      expect(envOf({ embed: { resources: unlimited } })).not.toHaveProperty("INTRA_OP_THREADS");
      const none = { limits: { cpu: null, memory: null } } as unknown as object;
      expect(envOf({ embed: { resources: none } })).not.toHaveProperty("INTRA_OP_THREADS");
    });

    test("requires the API key of a Secret", () => {
      const values: ChartValues = {
        embed: {
          service: { type: "LoadBalancer" },
          auth: { existingSecret: "keys" },
          tls: { secretName: "embed-tls" },
        },
      };
      expect(envOf(values)).not.toHaveProperty("ALLOW_ANONYMOUS");
      expect(podOf(values, "embed").containers[0].env).toContainEqual({
        name: "API_KEY",
        valueFrom: { secretKeyRef: { name: "keys", key: "api-key" } },
      });
    });

    test("mounts the Secrets of its certificate and its keys as folders, and probes HTTPS", () => {
      const values: ChartValues = {
        embed: {
          tls: { secretName: "embed-tls" },
          auth: { keysSecret: "clients", existingSecret: "metrics-key" },
        },
      };
      expect(envOf(values)).toMatchObject({
        TLS_CERT_FILE: "/etc/clipstack/tls/tls.crt",
        TLS_KEY_FILE: "/etc/clipstack/tls/tls.key",
        API_KEYS_FILE: "/etc/clipstack/keys/keys.json",
      });
      for (const name of ["API_KEY", "ALLOW_ANONYMOUS"]) {
        expect(envOf(values)).not.toHaveProperty(name);
      }
      const pod = podOf(values, "embed");
      for (const [name, secretName] of [
        ["tls", "embed-tls"],
        ["keys", "clients"],
      ]) {
        expect(pod.volumes).toContainEqual({ name, secret: { secretName } });
        const mountPath = `/etc/clipstack/${name}`;
        expect(pod.containers[0].volumeMounts).toContainEqual({ name, mountPath, readOnly: true });
      }
      const { startupProbe, readinessProbe, livenessProbe } = pod.containers[0];
      for (const probe of [startupProbe, readinessProbe, livenessProbe]) {
        expect(probe.httpGet.scheme).toBe("HTTPS");
      }
      expect(podOf({}, "embed").containers[0].readinessProbe.httpGet).not.toHaveProperty("scheme");
    });

    test("runs on a GPU, without an extra GPU for a rolling update", () => {
      const values: ChartValues = { embed: { accelerator: "gpu", runtimeClassName: "nvidia" } };
      const { spec } = deployment(values, "embed");
      expect(spec.strategy.rollingUpdate).toEqual({ maxSurge: 0, maxUnavailable: 1 });
      expect(spec.template.spec).toMatchObject({
        runtimeClassName: "nvidia",
        containers: [
          {
            resources: { requests: { "nvidia.com/gpu": "1" }, limits: { "nvidia.com/gpu": "1" } },
          },
        ],
      });
      expect(envOf(values).EXECUTION_PROVIDER).toBe("cuda");
    });

    test("as a gateway, reaches all Triton servers through a headless Service", () => {
      const objects = template(emulator);
      expect(envOf(emulator)).toMatchObject({
        BACKEND: "triton",
        TRITON_GRPC_URLS: "clipstack-triton-grpc:8001",
        TRITON_MODEL_KIND: "fp32",
        MODELS_FILE: "/etc/clipstack/models/models.json",
      });
      expect(objectOf(objects, "Service", "clipstack-triton-grpc").spec).toMatchObject({
        clusterIP: "None",
        ports: expect.arrayContaining([expect.objectContaining({ name: "grpc", port: 8001 })]),
      });
    });

    test("as a gateway, starts without its Triton servers, becomes ready with the first, and waits for their images and engines", () => {
      const { spec } = deployment(tensorrt, "embed");
      const { startupProbe, readinessProbe, livenessProbe } = spec.template.spec.containers[0];
      expect(startupProbe.httpGet.path).toBe("/healthz");
      expect(startupProbe.periodSeconds * startupProbe.failureThreshold).toBe(120);
      expect(readinessProbe.httpGet.path).toBe("/readyz");
      expect(livenessProbe.httpGet.path).toBe("/healthz");
      expect(spec.progressDeadlineSeconds).toBe(2 * (120 + 120 + 300) + 60 + 300 + 900);
    });

    test("without a gateway, starts only with its model loaded", () => {
      const { startupProbe } = podOf({}, "embed").containers[0];
      expect(startupProbe.httpGet.path).toBe("/readyz");
    });
  });

  describe("Triton", () => {
    test("runs with safe options, and loads one of the models in its image", () => {
      expect(tritonArgs(emulator)).toMatchObject({
        "model-repository": "/models",
        "model-config-name": "deployed",
        "strict-readiness": true,
        "exit-on-error": true,
        "disable-auto-complete-config": true,
        "http-max-input-size": 128 * 1024 * 1024,
        "model-control-mode": "explicit",
        "load-model": ["openclip_vit_b32"],
        "exit-timeout-secs": 30,
      });
    });

    test("closes the control APIs", () => {
      expect(tritonArgs(emulator)).toMatchObject(restrictControl("closed"));
      expect(podOf(emulator, "triton").containers[0].env ?? []).toEqual([]);
    });

    test("lets every client load models only if modelControl is open", () => {
      for (const model of [{ weights: "image" }, fetched] as const) {
        const values: ChartValues = {
          ...emulator,
          model,
          triton: { ...emulator.triton, modelControl: "open" },
        };
        expect(tritonArgs(values)).toMatchObject({
          "model-control-mode": "explicit",
          ...restrictControl("open"),
        });
        expect(podOf(values, "triton").containers[0].env ?? []).toEqual([]);
      }
    });

    test("has no model control if the weights are on a volume", () => {
      for (const model of [fetched, { weights: "pvc", pvc: { claimName: "weights" } } as const]) {
        expect(tritonArgs({ ...emulator, model })).toMatchObject({
          "model-control-mode": "none",
          "load-model": [],
          ...restrictControl("closed"),
        });
        // the volume hides the models of the image
        expect(podOf({ ...emulator, model }, "triton").containers[0].volumeMounts).toContainEqual({
          name: "repository",
          mountPath: "/models",
        });
      }
    });

    test("has a termination grace period of the preStop delay, its own grace period and 5 seconds", () => {
      const { graceSeconds, preStopSeconds } = { graceSeconds: 90, preStopSeconds: 12 };
      const values: ChartValues = {
        ...emulator,
        triton: { ...emulator.triton, graceSeconds, preStopSeconds },
      };
      const pod = podOf(values, "triton");
      expect(pod.terminationGracePeriodSeconds).toBe(12 + 90 + 5);
      expect(pod.containers[0].lifecycle.preStop.exec.command).toEqual(["sleep", "12"]);
      expect(tritonArgs(values)["exit-timeout-secs"]).toBe(90);
    });

    test.each([
      [1, 120 + 300],
      [4, 120 + 4 * 300],
    ])(
      "has a startup limit that covers an engine build on each of %d GPUs, and a later deadline",
      (gpus, seconds) => {
        const { spec } = deployment(
          { ...tensorrt, triton: { ...tensorrt.triton, gpus } },
          "triton",
        );
        const probe = spec.template.spec.containers[0].startupProbe;
        expect(probe.periodSeconds * probe.failureThreshold).toBe(seconds);
        expect(spec.progressDeadlineSeconds).toBe(2 * seconds + 60 + 900);
      },
    );

    test("has a deadline that includes the image pull, unlike its startup probe", () => {
      const { spec } = deployment({ triton: { ...own, imagePullSeconds: 3600 } }, "triton");
      const probe = spec.template.spec.containers[0].startupProbe;
      expect(probe.periodSeconds * probe.failureThreshold).toBe(120);
      expect(spec.progressDeadlineSeconds).toBe(2 * 120 + 60 + 3600);
    });

    test("with a GPU, stops a pod before it starts the next, unless a GPU is spare", () => {
      const strategy = (triton: ChartValues["triton"]) =>
        deployment({ triton: { ...own, ...triton } }, "triton").spec.strategy.rollingUpdate;
      expect(strategy({})).toEqual({ maxSurge: 0, maxUnavailable: 1 });
      expect(strategy({ spareGpu: true })).toEqual({ maxSurge: 1, maxUnavailable: 0 });
      expect(strategy({ gpus: 0 })).toEqual({ maxSurge: 1, maxUnavailable: 0 });
    });

    test.each(
      [0, 1, 4].flatMap((gpus) => [
        { gpus, backend: "onnxruntime", key: "tritonOnnx", model: "openclip_vit_b32" } as const,
        { gpus, backend: "tensorrt", key: "tritonTrt", model: "openclip_vit_b32_trt" } as const,
      ]),
    )(
      "with $backend on $gpus GPUs reads the configuration of a Docker host",
      ({ gpus, backend, key, model }) => {
        const values: ChartValues = { triton: { ...own, backend, gpus } };
        const { data } = objectOf(template(values), "ConfigMap", "clipstack-triton");
        expect(Object.keys(data)).toEqual(["deployed.pbtxt"]);
        expect(fieldsOf(data["deployed.pbtxt"])).toBe(fieldsOf(configOnHost(gpus, key)));
        const config = readModelConfig(data["deployed.pbtxt"], "deployed.pbtxt");
        expect(checkModelConfig(config, { specs: catalogueSpecs, gpus })).toEqual([]);
        expect(tritonArgs(values)["model-config-name"]).toBe("deployed");
        expect(podOf(values, "triton").containers[0].volumeMounts).toContainEqual({
          name: "model-config",
          mountPath: `/models/${model}/configs`,
          readOnly: true,
        });
      },
    );

    test("requests another resource than whole GPUs", () => {
      const gpuResourceName = "nvidia.com/mig-1g.10gb";
      const { resources } = podOf({ gpuResourceName, triton: own }, "triton").containers[0];
      expect(resources.requests[gpuResourceName]).toBe("1");
      expect(resources.limits[gpuResourceName]).toBe("1");
      expect(resources.limits).not.toHaveProperty("nvidia.com/gpu");
    });

    test("serves pixels with the kind u8", () => {
      const name = "openclip_vit_b32_u8";
      const values: ChartValues = {
        model: { weights: "pvc", pvc: { claimName: "weights" } },
        embed: { backend: "triton" },
        triton: { ...own, modelKind: "u8" },
      };
      expect(envOf(values)).toMatchObject({ TRITON_MODEL_KIND: "u8" });
      expect(podOf(values, "triton").containers[0].volumeMounts).toEqual(
        expect.arrayContaining([
          { name: "model-config", mountPath: `/models/${name}/configs`, readOnly: true },
          { name: "weights", mountPath: `/models/${name}/1`, readOnly: true },
        ]),
      );
      expect(tritonArgs({ triton: values.triton })["load-model"]).toEqual([name]);
      const { data } = objectOf(template(values), "ConfigMap", "clipstack-triton");
      expect(readModelConfig(data["deployed.pbtxt"], "deployed.pbtxt").name).toBe(name);
    });

    test("has another pod template with another configuration only", () => {
      const text = 'name: "openclip_vit_b32"\nmax_batch_size: 8\n';
      const checksum = (triton: ChartValues["triton"]) =>
        deployment({ triton: { ...own, ...triton } }, "triton").spec.template.metadata.annotations[
          "checksum/model-config"
        ];
      expect(checksum({})).toMatch(/^[0-9a-f]{64}$/);
      expect(checksum({ modelConfig: { texts: { openclip_vit_b32: text } } })).not.toBe(
        checksum({}),
      );
      expect(checksum({ replicas: 3 })).toBe(checksum({}));
    });

    test("has another engine cache for other weights or another image", () => {
      const prefix = (values: ChartValues) => {
        const { data } = objectOf(template(values), "ConfigMap", "clipstack-triton");
        const text: string = data["deployed.pbtxt"];
        return /key: "trt_engine_cache_prefix", value: "([^"]+)"/.exec(text)?.[1];
      };
      const image = (tag: string): ChartValues => ({
        ...tensorrt,
        triton: { ...own, backend: "tensorrt", image: { ...own.image, tag } },
      });
      const names = [
        prefix(tensorrt),
        prefix(image("26.08-py3")),
        prefix({ ...tensorrt, model: fetched }),
      ];
      expect(names).toEqual([
        expect.stringMatching(/^image_[0-9a-f]{12}_openclip_vit_b32_trt_fp16_b32$/),
        expect.stringMatching(/^image_[0-9a-f]{12}_openclip_vit_b32_trt_fp16_b32$/),
        expect.stringMatching(/^aaaaaaaaaaaa_[0-9a-f]{12}_openclip_vit_b32_trt_fp16_b32$/),
      ]);
      expect(new Set(names).size).toBe(3);
    });

    test("keeps its engines on a claim that its group can write to", () => {
      const values: ChartValues = {
        triton: {
          ...tensorrt.triton,
          image: { ...own.image, digest },
          engineCache: { enabled: true, size: "4Gi" },
        },
      };
      expect(
        objectOf(template(values), "PersistentVolumeClaim", "clipstack-triton-engines").spec,
      ).toEqual({
        accessModes: ["ReadWriteOnce"],
        resources: { requests: { storage: "4Gi" } },
      });
      const pod = podOf(values, "triton");
      expect(pod.securityContext.fsGroup).toBe(1000);
      expect(pod.volumes).toContainEqual({
        name: "engines",
        persistentVolumeClaim: { claimName: "clipstack-triton-engines" },
      });
      expect(pod.containers[0].volumeMounts).toContainEqual({
        name: "engines",
        mountPath: "/engine-cache",
      });
    });

    test("has shared memory of the declared size", () => {
      const pod = podOf({ triton: { ...own, sharedMemory: "2Gi" } }, "triton");
      expect(pod.volumes).toContainEqual({
        name: "shared-memory",
        emptyDir: { medium: "Memory", sizeLimit: "2Gi" },
      });
      expect(pod.containers[0].volumeMounts).toContainEqual({
        name: "shared-memory",
        mountPath: "/dev/shm",
      });
    });

    test("publishes its metrics on no external Service", () => {
      const objects = template({
        model: fetched,
        triton: {
          ...own,
          allowUnauthenticated: true,
          allowPlaintext: true,
          service: { type: "LoadBalancer" },
        },
      });
      const { spec } = objectOf(objects, "Service", "clipstack-triton");
      expect(spec.ports.map(({ name }: { name: string }) => name)).toEqual(["http", "grpc"]);
    });
  });

  describe("weights", () => {
    const mounts = (values: ChartValues, component: "embed" | "triton") =>
      podOf(values, component).containers[0].volumeMounts;

    test("in the images need no volume", () => {
      expect(podOf({}, "embed")).not.toHaveProperty("initContainers");
      expect(mounts({}, "embed").map(({ name }: { name: string }) => name)).toEqual([
        "tmp",
        "models",
      ]);
    });

    test("are downloaded and verified before the server starts", () => {
      const values: ChartValues = { model: fetched };
      const pod = podOf(values, "embed");
      expect(pod.initContainers).toEqual([
        expect.objectContaining({
          name: "weights",
          image: "clipstack/embed:k8s-cpu",
          args: [
            "fetch-weights",
            "--url=https://models.example:8443/model.onnx",
            `--max-bytes=${2 ** 30}`,
            "--timeout-seconds=900",
            "--folder=/weights",
            `--sha256=${sha256}`,
          ],
        }),
      ]);
      expect(pod.volumes).toContainEqual({ name: "weights", emptyDir: { sizeLimit: "1Gi" } });
      expect(mounts(values, "embed")).toContainEqual({
        name: "weights",
        mountPath: "/models/openclip_vit_b32/1",
        readOnly: true,
      });
    });

    test.each([
      ["1Gi", 2 ** 30],
      ["1.5Gi", 1.5 * 2 ** 30],
      ["1536Mi", 1536 * 2 ** 20],
      ["600M", 600e6],
      ["1500m", 1],
      ["4096", 4096],
      [1_073_741_824, 2 ** 30],
    ])(
      "are not downloaded beyond the size limit of %s, with options that the image accepts",
      (sizeLimit, maxBytes) => {
        const init = { ...fetched.init, sizeLimit, timeoutSeconds: 60 };
        const [container] = podOf({ model: { ...fetched, init } }, "embed").initContainers;
        const options = readFetchWeightsArguments((container.args as string[]).slice(1));
        expect(options).toMatchObject({ maxBytes, timeoutSeconds: 60 });
      },
    );

    test("are downloaded from a URL in a Secret, which no object contains", () => {
      const init = { existingSecret: "weights-url" };
      const objects = template({ model: { weights: "init", sha256, init } });
      const { spec } = objectOf(objects, "Deployment", "clipstack-embed");
      const [container] = spec.template.spec.initContainers;
      // substituted by the kubelet
      expect(container.args).toContain("--url=$(WEIGHTS_URL)");
      expect(container.env).toEqual([
        {
          name: "WEIGHTS_URL",
          valueFrom: { secretKeyRef: { name: "weights-url", key: "url" } },
        },
      ]);
      const { egress } = objectOf(objects, "NetworkPolicy", "clipstack-embed").spec;
      expect(egress).toContainEqual({ ports: [{ protocol: "TCP", port: 443 }] });
    });

    test("are downloaded for a Triton server by the embed image, without a GPU", () => {
      const values: ChartValues = { ...tensorrt, model: fetched };
      const [init] = podOf(values, "triton").initContainers;
      expect(init).toMatchObject({ image: "clipstack/embed:k8s-cpu" });
      expect(init.resources.limits).not.toHaveProperty("nvidia.com/gpu");
      expect(mounts(values, "triton")).toContainEqual({
        name: "weights",
        mountPath: "/models/openclip_vit_b32_trt/1",
        readOnly: true,
      });
    });

    test("on a volume are verified if their checksum is set, and mounted read-only", () => {
      const pvc = { claimName: "weights", subPath: "openclip_vit_b32/1" };
      const values: ChartValues = { model: { weights: "pvc", sha256, pvc } };
      expect(podOf(values, "embed").initContainers).toMatchObject([
        {
          args: ["check-weights", "--folder=/weights", `--sha256=${sha256}`],
          volumeMounts: [
            { name: "tmp" },
            { name: "weights", readOnly: true, subPath: "openclip_vit_b32/1" },
          ],
        },
      ]);
      expect(podOf(values, "embed").volumes).toContainEqual({
        name: "weights",
        persistentVolumeClaim: { claimName: "weights", readOnly: true },
      });
      expect(podOf({ model: { weights: "pvc", pvc } }, "embed")).not.toHaveProperty(
        "initContainers",
      );
    });
  });

  describe("autoscaling of Triton", () => {
    const scaling = (autoscaling: object): ChartValues => ({
      triton: { ...own, autoscaling: { enabled: true, ...autoscaling } },
    });

    test("on queue time by KEDA compares the value, not the average per pod, and needs data to scale down", () => {
      const objects = template(scaling({ prometheus: { url: "http://prometheus:9090" } }));
      const { spec } = objectOf(objects, "ScaledObject", "clipstack-triton");
      expect(spec).toMatchObject({
        minReplicaCount: 1,
        maxReplicaCount: 4,
        scaleTargetRef: { name: "clipstack-triton" },
        triggers: [
          {
            type: "prometheus",
            metricType: "Value",
            metadata: {
              serverAddress: "http://prometheus:9090",
              threshold: "50",
              ignoreNullValues: "false",
            },
          },
        ],
      });
      // a name that the chart does not use
      expect(spec.advanced.horizontalPodAutoscalerConfig).not.toHaveProperty("name");
      expect(objects.filter(({ kind }) => kind === "HorizontalPodAutoscaler")).toEqual([]);
    });

    test("by KEDA falls back to the minimum number of pods if Prometheus is unavailable", () => {
      const fallback = (more: object) =>
        objectOf(
          template(scaling({ prometheus: { url: "http://prometheus:9090" }, ...more })),
          "ScaledObject",
          "clipstack-triton",
        ).spec.fallback;
      const behavior = "currentReplicasIfHigher";
      expect(fallback({ minReplicas: 2 })).toEqual({ failureThreshold: 4, replicas: 2, behavior });
      expect(fallback({ fallbackReplicas: 3 })).toMatchObject({ replicas: 3 });
      // KEDA before 2.18 rejects it for a metric of type Value
      expect(fallback({ fallbackReplicas: 0 })).toBeUndefined();
    });

    test("by KEDA removes all pods of an idle gateway, which stays ready without them", () => {
      const values: ChartValues = {
        embed: { backend: "triton" },
        ...scaling({
          prometheus: { url: "http://prometheus:9090" },
          scaleToZero: { enabled: true, afterSeconds: 600 },
        }),
      };
      const { spec } = objectOf(template(values), "ScaledObject", "clipstack-triton");
      expect(spec).toMatchObject({ minReplicaCount: 0, cooldownPeriod: 600 });
      const [readiness] = podOf(values, "embed").containers.map(
        (it: { readinessProbe: { httpGet: { path: string } } }) => it.readinessProbe.httpGet.path,
      );
      expect(readiness).toBe("/healthz");
    });

    test("by KEDA also follows the use of the GPUs and schedules", () => {
      const schedule = { timezone: "Europe/Berlin", start: "0 8 * * 1-5", end: "0 18 * * 1-5" };
      const { triggers } = objectOf(
        template(
          scaling({
            prometheus: { url: "http://prometheus:9090" },
            targetGpuPercent: 80,
            schedules: [{ ...schedule, replicas: 3 }],
          }),
        ),
        "ScaledObject",
        "clipstack-triton",
      ).spec;
      expect(triggers.slice(1)).toMatchObject([
        {
          metadata: {
            query: 'avg(DCGM_FI_DEV_GPU_UTIL{namespace="clipstack",pod=~"clipstack-triton-.+"})',
            threshold: "80",
          },
        },
        { type: "cron", metadata: { ...schedule, desiredReplicas: "3" } },
      ]);
    });

    test("adds and removes one pod per minute with GPUs, or as configured", () => {
      const behaviorOf = (values: ChartValues): unknown =>
        objectOf(template(values), "HorizontalPodAutoscaler", "clipstack-triton").spec.behavior;
      const policies = [{ type: "Pods", value: 1, periodSeconds: 60 }];
      expect(behaviorOf(scaling({ source: "prometheus-adapter" }))).toEqual({
        scaleUp: { stabilizationWindowSeconds: 30, selectPolicy: "Max", policies },
        scaleDown: { stabilizationWindowSeconds: 180, selectPolicy: "Max", policies },
      });
      expect(
        behaviorOf({
          triton: { ...own, gpus: 0, autoscaling: { enabled: true, metric: "cpu" } },
        }),
      ).not.toHaveProperty("scaleUp");
      const behavior = { scaleUp: { stabilizationWindowSeconds: 0 } };
      expect(behaviorOf(scaling({ source: "prometheus-adapter", behavior }))).toEqual(behavior);
    });

    test("spreads the pods of each version separately", () => {
      expect(podOf({ triton: own }, "triton").topologySpreadConstraints).toMatchObject([
        { matchLabelKeys: ["pod-template-hash"] },
      ]);
    });

    test("on queue time by the Prometheus adapter reads a pod metric", () => {
      const { spec } = objectOf(
        template(scaling({ source: "prometheus-adapter" })),
        "HorizontalPodAutoscaler",
        "clipstack-triton",
      );
      expect(spec.metrics).toEqual([
        {
          type: "Pods",
          pods: {
            metric: { name: "clipstack_triton_queue_milliseconds" },
            target: { type: "AverageValue", averageValue: "50" },
          },
        },
      ]);
    });

    test("on CPU reads the resource metric", () => {
      const { spec } = objectOf(
        template(scaling({ metric: "cpu", cpuPercent: 75 })),
        "HorizontalPodAutoscaler",
        "clipstack-triton",
      );
      expect(spec.metrics).toMatchObject([
        { type: "Resource", resource: { name: "cpu", target: { averageUtilization: 75 } } },
      ]);
    });
  });

  describe("network policy", () => {
    const policy = (values: ChartValues, component: string) =>
      objectOf(template(values), "NetworkPolicy", `clipstack-${component}`).spec;

    test("denies all egress of an embed server without a gateway", () => {
      expect(policy({}, "embed")).toMatchObject({ policyTypes: ["Ingress", "Egress"] });
      expect(policy({}, "embed")).not.toHaveProperty("egress");
    });

    test("admits `helm test` and metrics scrapers to an embed server with restricted ingress", () => {
      const client = { podSelector: { matchLabels: { app: "shop" } } };
      const prometheus = { namespaceSelector: { matchLabels: { team: "monitoring" } } };
      const networkPolicy = { embedFrom: [client], metricsFrom: [prometheus] };
      const labels = template({}).find(({ metadata, kind }) => {
        return kind === "Pod" && metadata.name === "clipstack-embed-test";
      })?.metadata.labels;
      const tester = {
        podSelector: {
          matchLabels: {
            [labelNames.name]: "clipstack",
            [labelNames.instance]: "clipstack",
            [labelNames.component]: "test",
          },
        },
      };
      expect(labels).toMatchObject(tester.podSelector.matchLabels);
      const from = (values: ChartValues) => policy(values, "embed").ingress[0].from;
      expect(from({ networkPolicy })).toEqual([client, tester]);
      expect(from({ networkPolicy, serviceMonitor: { enabled: true } })).toEqual([
        client,
        tester,
        prometheus,
      ]);
    });

    test("admits only the gateway to the Triton servers, and lets it resolve them", () => {
      expect(JSON.stringify(policy(emulator, "embed").egress)).toContain('"port":"grpc"');
      expect(policy(emulator, "triton").ingress[0].from).toEqual([
        {
          podSelector: {
            matchLabels: expect.objectContaining({ [labelNames.component]: "embed" }),
          },
        },
      ]);
      expect(policy(emulator, "triton")).not.toHaveProperty("egress");
    });

    test("admits all clients to an external Triton, or only the configured ones", () => {
      const outside = {
        model: fetched,
        embed: { backend: "triton" },
        triton: {
          ...emulator.triton,
          allowUnauthenticated: true,
          allowPlaintext: true,
          service: { type: "NodePort" },
        },
      } as const satisfies ChartValues;
      const peer = { ipBlock: { cidr: "10.0.0.0/8" } };
      expect(policy(outside, "triton").ingress[0]).not.toHaveProperty("from");
      expect(
        policy({ ...outside, networkPolicy: { tritonFrom: [peer] } }, "triton").ingress[0].from,
      ).toEqual([expect.objectContaining({ podSelector: expect.anything() }), peer]);
    });

    test("admits configured clients to Triton, or all clients if the release has no embed server", () => {
      const peer = { namespaceSelector: { matchLabels: { team: "search" } } };
      const named = policy({ ...emulator, networkPolicy: { tritonFrom: [peer] } }, "triton");
      expect(named.ingress[0].from).toContainEqual(peer);
      const alone = policy({ embed: { enabled: false }, triton: { ...own } }, "triton");
      expect(alone.ingress[0]).not.toHaveProperty("from");
    });

    test.each([
      ["https://models.example/model.onnx", 443],
      ["http://models.example/model.onnx", 80],
      ["http://models.example:8080/model.onnx", 8080],
      ["https://[2001:db8::1]:8443/model.onnx", 8443],
      ["https://models.example/m%zz", 443],
    ])("allows egress to the weights at %s", (url, port) => {
      const { egress } = policy({ model: { ...fetched, init: { url } } }, "embed");
      expect(egress).toContainEqual({ ports: [{ protocol: "TCP", port }] });
    });

    test("allows egress of the embed server to the hosts of image URLs", () => {
      const imageUrlHosts = ["images.example", "http://10.0.0.7:9000", "https://cdn.example"];
      const values: ChartValues = {
        ...emulator,
        embed: { ...emulator.embed, server: { imageUrlHosts } },
      };
      expect(policy(values, "embed").egress.slice(-2)).toEqual(
        [443, 9000].map((port) => ({ ports: [{ protocol: "TCP", port }] })),
      );
      expect(policy(values, "triton")).not.toHaveProperty("egress");
    });

    test("can be disabled", () => {
      const objects = template({ networkPolicy: { enabled: false } });
      expect(objects.filter(({ kind }) => kind === "NetworkPolicy")).toEqual([]);
    });
  });

  describe("PodDisruptionBudget", () => {
    const budget = (it: object) =>
      objectOf(
        template({ embed: { replicas: 3, budget: it } }),
        "PodDisruptionBudget",
        "clipstack-embed",
      ).spec;

    test("allows the eviction of one pod, and of every pod that is not ready", () => {
      expect(budget({})).toMatchObject({
        maxUnavailable: 1,
        unhealthyPodEvictionPolicy: "AlwaysAllow",
      });
    });

    test("has minAvailable if it is set", () => {
      expect(budget({ minAvailable: 2 })).toMatchObject({ minAvailable: 2 });
      expect(budget({ minAvailable: 2 })).not.toHaveProperty("maxUnavailable");
    });
  });

  describe("names", () => {
    test("start with the release, followed by the chart unless the release contains it", () => {
      const names = (release: string, values: ChartValues = {}) =>
        objectOf(
          template(values, { release }),
          "Deployment",
          `${release === "photos" ? "photos-clipstack" : release}-embed`,
        ).metadata.name;
      expect(names("photos")).toBe("photos-clipstack-embed");
      expect(names("clipstack-test")).toBe("clipstack-test-embed");
    });

    test("of service accounts can be that of an existing one", () => {
      const objects = template({ serviceAccount: { name: "shared" } });
      expect(objects.filter(({ kind }) => kind === "ServiceAccount")).toEqual([]);
      expect(podsOf(objects)[0]?.spec.serviceAccountName).toBe("shared");
    });

    test("of additional labels replace none of the chart's labels", () => {
      const objects = template({
        commonLabels: { team: "search", [labelNames.name]: "other" },
        embed: { podLabels: { zone: "a", [labelNames.component]: "other" } },
      });
      const { metadata, spec } = objectOf(objects, "Deployment", "clipstack-embed");
      expect(metadata.labels).toMatchObject({ team: "search", [labelNames.name]: "clipstack" });
      expect(spec.template.metadata.labels).toMatchObject({
        team: "search",
        zone: "a",
        [labelNames.name]: "clipstack",
        [labelNames.component]: "embed",
      });
    });
  });

  describe("the schema rejects", () => {
    test.each(
      Object.entries<object>({
        "additional properties 'embd' not allowed": { embd: {} },
        "at '/networkPolicy/egress/0': additional properties 'tos' not allowed": {
          networkPolicy: { egress: [{ tos: [{ ipBlock: { cidr: "10.0.0.0/8" } }] }] },
        },
        "at '/triton/backend'": { triton: { backend: "torch" } },
      }),
    )("%s", (message, values) => {
      const { code, stderr } = tryTemplate(values);
      expect(code).toBe(1);
      expect(stderr).toContain(message);
    });
  });

  describe("fails in one line", () => {
    test.each(
      Object.entries<ChartValues>({
        "embed.enabled, triton.enabled or bulk.enabled must be true: nothing would be deployed": {
          embed: { enabled: false },
        },
        "triton.enabled must be true with embed.backend triton: the gateway calls the Triton servers of this release":
          { embed: { backend: "triton" } },
        "embed.accelerator must be cpu with embed.backend triton: a gateway uses no GPU, got gpu": {
          ...emulator,
          embed: { backend: "triton", accelerator: "gpu" },
        },
        "model.pvc.claimName is required with model.weights pvc": { model: { weights: "pvc" } },
        "model.init.url or model.init.existingSecret is required with model.weights init": {
          model: { weights: "init" },
        },
        "model.init must have url or existingSecret, not both": {
          model: { ...fetched, init: { ...fetched.init, existingSecret: "weights" } },
        },
        "model.init.sizeLimit must be at least 1 byte with model.weights init, got 500m": {
          model: { ...fetched, init: { ...fetched.init, sizeLimit: "500m" } },
        },
        "model.sha256 is required with model.weights init, to verify the download": {
          model: { weights: "init", init: { url: "https://models.example/m" } },
        },
        "embed.server.modelPrecision must be fp32 with model.weights init: with pvc or image, the file of the precision is beside model.onnx, got int8":
          { model: fetched, embed: { server: { modelPrecision: "int8" } } },
        "embed.auth.existingSecret is required with embed.service.type LoadBalancer (or set embed.auth.allowAnonymous if the network restricts access)":
          { embed: { service: { type: "LoadBalancer" } } },
        "embed.tls.secretName is required with embed.service.type LoadBalancer (or set embed.allowPlaintext if the network is private or a load balancer has the certificate)":
          { embed: { service: { type: "LoadBalancer" }, auth: { existingSecret: "keys" } } },
        "embed.auth must have existingSecret or allowAnonymous, not both": {
          embed: { auth: { existingSecret: "keys", allowAnonymous: true } },
        },
        "embed.auth.existingSecret is required with ingress.enabled (or set embed.auth.allowAnonymous if the network restricts access)":
          { ingress: { enabled: true, host: "a.example" } },
        "ingress.tlsSecretName is required with ingress.enabled (or set ingress.allowPlaintext if a load balancer has the certificate)":
          {
            ingress: { enabled: true, host: "a.example" },
            embed: { auth: { existingSecret: "keys" } },
          },
        "embed.auth.existingSecret is required with httpRoute.enabled (or set embed.auth.allowAnonymous if the network restricts access)":
          { httpRoute: { enabled: true, parentRefs: [{ name: "public", sectionName: "https" }] } },
        "httpRoute.parentRefs must have at least one Gateway with httpRoute.enabled": {
          httpRoute: { enabled: true },
          embed: { auth: { existingSecret: "keys" } },
        },
        "httpRoute.parentRefs.0.sectionName is required: the listener with TLS (or set httpRoute.allowPlaintext if all listeners of the Gateway may have the route)":
          {
            httpRoute: { enabled: true, parentRefs: [{ name: "public" }] },
            embed: { auth: { existingSecret: "keys" } },
          },
        "triton.allowUnauthenticated must be true with grpcRoute.enabled: Triton has no authentication":
          {
            triton: { enabled: true, server: "emulator", gpus: 0 },
            grpcRoute: { enabled: true, parentRefs: [{ name: "public", sectionName: "grpcs" }] },
          },
        "embed.auth.existingSecret is required with embed.auth.keysSecret: it has the key of the client that reads metrics and runs helm test":
          { embed: { auth: { keysSecret: "clients" } } },
        "embed.service.nodePort requires embed.service.type NodePort or LoadBalancer, got ClusterIP":
          { embed: { service: { nodePort: 30_092 } } },
        "embed.extraEnv must not set PORT: the chart does": {
          embed: { extraEnv: [{ name: "PORT", value: "80" }] },
        },
        "embed.extraEnv must not set OTEL_SERVICE_NAME: the chart does": {
          tracing: { endpoint: "http://collector:4318" },
          embed: { extraEnv: [{ name: "OTEL_SERVICE_NAME", value: "mine" }] },
        },
        "triton.gpus must be 0 with triton.server emulator, which runs on the CPU, got 1": {
          triton: { enabled: true, server: "emulator" },
        },
        "model.weights must be pvc or init with the image nvcr.io/nvidia/tritonserver, which contains no weights (docs/images.md builds one that does), got image":
          { triton: { enabled: true } },
        'triton.modelConfig.texts.openclip_vit_b32 must be the configuration of openclip_vit_b32 (name: "openclip_vit_b32")':
          { triton: { ...own, modelConfig: { texts: { openclip_vit_b32: 'name: "resnet"\n' } } } },
        "triton.allowUnauthenticated must be true with triton.service.type NodePort: Triton has no authentication":
          { model: fetched, triton: { ...own, service: { type: "NodePort" } } },
        "triton.allowPlaintext must be true with triton.service.type NodePort: Triton has no TLS": {
          model: fetched,
          triton: { ...own, allowUnauthenticated: true, service: { type: "NodePort" } },
        },
        "triton.service.type must be ClusterIP with model.weights image: clients could load and unload models, got NodePort":
          {
            triton: {
              ...own,
              allowUnauthenticated: true,
              allowPlaintext: true,
              service: { type: "NodePort" },
            },
          },
        "triton.engineCache.enabled requires triton.backend tensorrt and GPUs": {
          triton: { ...own, engineCache: { enabled: true } },
        },
        "model.sha256 is required with triton.engineCache, so that engines of different weights are not reused":
          {
            model: { weights: "pvc", pvc: { claimName: "weights" } },
            triton: { ...tensorrt.triton, engineCache: { enabled: true } },
          },
        "triton.image.digest is required with triton.engineCache and model.weights image: a tag can change its weights, and engines of the previous weights would be reused":
          { triton: { ...tensorrt.triton, engineCache: { enabled: true } } },
        "triton.autoscaling.prometheus.url is required with triton.autoscaling.source keda": {
          triton: { ...own, autoscaling: { enabled: true } },
        },
        "embed.autoscaling.minReplicas (9) must not exceed maxReplicas (6)": {
          embed: { autoscaling: { enabled: true, minReplicas: 9 } },
        },
        "embed.resources.requests.cpu is required for autoscaling on CPU: cpuPercent is relative to it":
          {
            embed: {
              autoscaling: { enabled: true },
              resources: { requests: { cpu: null, memory: "1Gi" } } as unknown as object,
            },
          },
        "embed.budget must set either maxUnavailable or minAvailable, got both": {
          embed: { budget: { maxUnavailable: 1, minAvailable: 1 } },
        },
        "embed.budget.minAvailable (2) must be less than the minimum replicas (2), otherwise no node can be drained":
          { embed: { budget: { minAvailable: 2 } } },
        "triton.resources must not have nvidia.com/gpu: the chart adds it": {
          triton: { ...own, resources: { limits: { "nvidia.com/gpu": 1 } } },
        },
        "quota.hard must list at least one resource with quota.enabled": {
          quota: { enabled: true },
        },
        "quota.hard.requests.nvidia.com/gpu must be at least 5 (GPUs per pod × maximum pods, plus one pod with spareGpu), got 4":
          {
            triton: {
              ...own,
              spareGpu: true,
              autoscaling: { enabled: true, metric: "cpu", maxReplicas: 4 },
            },
            quota: { enabled: true, hard: { "requests.nvidia.com/gpu": "4" } },
          },
        "quota.hard.pods must be at least 11 (maximum pods of embed, triton and bulk, plus those added by a rolling update), got 10":
          {
            embed: { backend: "triton", autoscaling: { enabled: true, maxReplicas: 8 } },
            triton: { ...own, replicas: 2 },
            quota: { enabled: true, hard: { pods: "10" } },
          },
        "triton.extraArgs.1 must not set --model-repository: the chart does": {
          triton: { ...own, extraArgs: ["--log-info=1", "--model-repository=/other"] },
        },
        "triton.resourceClaimTemplate requires triton.gpus of at least 1, got 0": {
          triton: { enabled: true, server: "emulator", gpus: 0, resourceClaimTemplate: "gpu" },
        },
        "embed.resourceClaimTemplate requires embed.backend onnxruntime and embed.accelerator gpu":
          { embed: { resourceClaimTemplate: "gpu" } },
        "embed.extraVolumes.0.name must be a name of its own, got tmp": {
          embed: { extraVolumes: [{ name: "tmp", emptyDir: {} }] },
        },
        "embed.extraVolumeMounts.0.name must be the name of one of embed.extraVolumes, got ca": {
          embed: { extraVolumeMounts: [{ name: "ca", mountPath: "/ca" }] },
        },
        "embed.extraContainers.0 must have an image and a name other than embed": {
          embed: { extraContainers: [{ name: "embed", image: "proxy:1" }] },
        },
        "embed.service.type must be LoadBalancer with loadBalancerClass or loadBalancerSourceRanges, got ClusterIP":
          { embed: { service: { loadBalancerSourceRanges: ["10.0.0.0/8"] } } },
        "embed.service.type must be NodePort or LoadBalancer with externalTrafficPolicy Local, got ClusterIP":
          { embed: { service: { externalTrafficPolicy: "Local" } } },
        "triton.autoscaling.schedules requires triton.autoscaling with metric queue-time and source keda":
          {
            triton: {
              ...own,
              autoscaling: {
                enabled: true,
                metric: "cpu",
                schedules: [
                  { timezone: "UTC", start: "0 8 * * *", end: "0 18 * * *", replicas: 2 },
                ],
              },
            },
          },
        "triton.autoscaling.schedules.0.replicas must be at most maxReplicas (4), got 9": {
          triton: {
            ...own,
            autoscaling: {
              enabled: true,
              prometheus: { url: "http://p:9090" },
              schedules: [{ timezone: "UTC", start: "0 8 * * *", end: "0 18 * * *", replicas: 9 }],
            },
          },
        },
        "triton.autoscaling.scaleToZero requires source keda and a gateway (embed.backend triton), whose requests add the first pod":
          {
            triton: {
              ...own,
              autoscaling: {
                enabled: true,
                prometheus: { url: "http://p:9090" },
                scaleToZero: { enabled: true },
              },
            },
          },
      }),
    )("%s", (message, values) => {
      expect(rejectionOf(values)).toBe(message);
    });

    test.each([
      "https://user:pa55word@models.example/m?sig=SECRET",
      "https:///user:pa55word@models.example/m",
      "https://models.example:port/m?sig=SECRET",
      "ftp://models.example/m?sig=SECRET",
      "https://models.example/m?sig=SECRET and more",
      "https://models.example/m?sig=SECRET",
    ])("on the address %s, which it does not repeat", (url) => {
      expect(rejectionOf({ model: { ...fetched, init: { url } } })).toBe(
        "model.init.url must be http://… or https://… without user, password or query; put a URL with a secret into the Secret model.init.existingSecret",
      );
    });

    test("on a name, with its rule; chart-names has every kind", () => {
      const fullnameOverride = "My_Clip";
      expect(rejectionOf({ fullnameOverride })).toBe(
        `fullnameOverride, or the release name with nameOverride, must be a valid Service name (a-z, 0-9 and -, starting with a letter and not ending with -), got ${fullnameOverride}`,
      );
    });
  });
});
