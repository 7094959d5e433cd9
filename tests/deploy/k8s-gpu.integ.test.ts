import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "node:tls";
import { fileURLToPath } from "node:url";
import { Agent } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { issueCertificate } from "./test-certificate.ts";
import {
  autoscalersSee,
  kindEnvironment,
  missingForCharts,
  missingForCluster,
  sharedCluster,
  type TestCluster,
  testNodePort,
} from "./test-cluster.ts";
import { testDocker } from "./test-docker.ts";
import { imageWithWeights } from "./test-image.ts";
import { findsProvider } from "./test-kind-project.ts";
import { keepSending, statusWithKey } from "./test-load.ts";
import { type TestProject, testProject } from "./test-project.ts";

/** A gateway with HTTPS and keys, and two Triton servers, from the chart on an existing cluster, on the CPU. */

const keys = ["first-0123456789abcdef", "second-0123456789abcdef"] as const;
const photo = await readFile(
  fileURLToPath(new URL("../../model-tools/samples/dunes.jpg", import.meta.url)),
);

const { docker } = await testDocker();
const noProvider = async (name: "kubernetes" | "helm") =>
  (await findsProvider(name)) ? "" : `terraform init finds no provider for ${name}`;
const missing =
  (await missingForCluster()) ||
  (await missingForCharts()) ||
  (await noProvider("kubernetes")) ||
  (await noProvider("helm"));

describe.skipIf(missing !== "")(
  `k8s-gpu, deployed with cdktf${missing && ` (skipped: ${missing})`}`,
  () => {
    const namespace = "clipstack-gpu";
    let cluster: TestCluster;
    let project: TestProject;
    let image = "";
    /** Folder with the certificate and the keys of clients. */
    let access = "";

    /** Creates or replaces a Secret of the namespace, from files of the folder. */
    const applySecret = async (words: string, files: readonly string[]) => {
      const from = files.map((file) => `--from-file=${join(access, file)}`);
      const text = await cluster.kubectl(
        ...["create", "secret", "generic", ...words.split(" "), ...from],
        ...["--namespace", namespace, "--dry-run=client", "--output=yaml"],
      );
      const { code, output } = await cluster.tryKubectl(["apply", "--filename", "-"], text);
      expect(code, output).toBe(0);
    };
    const applyCertificate = async () => {
      await issueCertificate(access, [`DNS:clipstack-embed.${namespace}.svc`, "IP:127.0.0.1"]);
      await applySecret("embed-tls --type=kubernetes.io/tls", ["tls.crt", "tls.key", "ca.crt"]);
    };
    const applyKeys = async (accepted: readonly string[]) => {
      const list = accepted.map((key, index) => ({ name: `client-${index}`, key }));
      await writeFile(join(access, "keys.json"), JSON.stringify(list));
      await applySecret("embed-keys", ["keys.json"]);
    };

    /** With `gpu`, the embed image replaces NVIDIA's image, because it accepts the same command. */
    const settings = (accelerator: "cpu" | "gpu") => {
      const limits = { cpuMillicores: 1_000, memoryMiB: 1_024 };
      return project.settings("k8s-gpu", {
        accelerator,
        cluster: { kubeconfig: cluster.kubeconfig, context: cluster.context },
        nodePool: { gpu: "l4", nodes: 1, gpusPerNode: 2 },
        namespace,
        createNamespace: false,
        embed: {
          image,
          service: "NodePort",
          tls: { secret: "embed-tls" },
          keySecret: "embed-key",
          keysSecret: "embed-keys",
          resources: { requests: { cpuMillicores: 50, memoryMiB: 256 }, limits },
          autoscaler: { minReplicas: 1, maxReplicas: 2, cpuPercent: 400 },
        },
        triton: {
          server: accelerator === "gpu" ? "tritonserver" : "emulator",
          image,
          resources: { requests: { cpuMillicores: 50, memoryMiB: 256 }, limits },
          autoscaler: { minReplicas: 2, maxReplicas: 2 },
        },
        chartValues: { embed: { service: { nodePort: testNodePort } } },
        scraping: "none",
        quota: {
          gpus: 2,
          requests: { cpuMillicores: 600, memoryMiB: 4_096 },
          limits: { cpuMillicores: 8_000, memoryMiB: 8_192 },
          pods: 8,
        },
      });
    };

    beforeAll(async () => {
      cluster = await sharedCluster();
      image = await imageWithWeights(docker);
      await cluster.load(image);
      access = await mkdtemp(join(tmpdir(), "clipstack-access-"));
      await cluster.kubectl("create", "namespace", namespace);
      await applyCertificate();
      await applyKeys([keys[0]]);
      await writeFile(join(access, "api-key"), "prometheus-0123456789abcdef");
      await applySecret("embed-key", ["api-key"]);
      project = await testProject({
        docker,
        variables: { ...kindEnvironment, INFERENCE_API_KEY: keys[0] },
      });
      await settings("cpu");
    });
    afterAll(async () => {
      await project?.remove();
      await cluster?.kubectl("delete", "namespace", namespace, "--wait=false");
      await rm(access, { recursive: true, force: true });
      if (image !== "") await docker.run("rmi", "--no-prune", image);
    });

    test("one deployment installs the chart and succeeds once every pod is ready", async () => {
      const { code, output } = await project.deploy("k8s-gpu");
      expect(code, output).toBe(0);
      const pods = await cluster.kubectl(
        ...["get", "pods", "--namespace", namespace, "--output"],
        'jsonpath={range .items[*]}{.metadata.labels.app\\.kubernetes\\.io/component} {.status.containerStatuses[0].ready}{"\\n"}{end}',
      );
      expect(pods.trim().split("\n").sort()).toEqual(["embed true", "triton true", "triton true"]);
    });

    test("verify passes, over HTTPS through a forwarded port", async () => {
      await autoscalersSee(cluster.kubeconfig);
      const { code, output } = await project.clipstack(
        ...["verify", "k8s-gpu", "--target", "deployed", "--seconds", "1"],
        ...["--report", join(project.folder, "reports")],
      );
      expect(code, output).toBe(0);
    });

    test("a renewed certificate and other keys are used under load, without a failed request", async () => {
      const ca = await readFile(join(access, "ca.crt"));
      const url = `https://127.0.0.1:${cluster.hostPort}`;
      /** Sends an image on a connection of its own. */
      const statusOf = async (key: string) => {
        const dispatcher = new Agent({ connect: { ca } });
        try {
          return await statusWithKey(dispatcher, url, photo, key);
        } finally {
          await dispatcher.close();
        }
      };
      const certificate = async () => {
        const socket = connect({ host: "127.0.0.1", port: cluster.hostPort, ca });
        await once(socket, "secureConnect");
        const { serialNumber } = socket.getPeerCertificate();
        socket.destroy();
        return serialNumber;
      };
      // the kubelet updates the volumes of a changed pod at once, otherwise within two minutes
      const updateVolumes = () =>
        cluster.kubectl(
          ...["annotate", "pods", "--all", "--overwrite", "--namespace", namespace],
          `updated=${Date.now()}`,
        );
      let key: string = keys[0];
      const load = keepSending(async () => {
        const status = await statusOf(key);
        if (status !== 200) throw new Error(`status ${status}`);
      });
      try {
        await load.more(10);
        const first = await certificate();
        await applyCertificate();
        await applyKeys(keys);
        await updateVolumes();
        await expect.poll(certificate).not.toBe(first);
        await expect.poll(() => statusOf(keys[1])).toBe(200);
        key = keys[1];
        // more than all requests in flight with the first key
        await load.more(10);
        await applyKeys([keys[1]]);
        await updateVolumes();
        await expect.poll(() => statusOf(keys[0])).toBe(401);
        await load.more(10);
      } finally {
        await load.stop();
      }
      expect(load.lost).toEqual([]);
    });

    test("a second deployment plans no change", async () => {
      expect(await project.plan("k8s-gpu")).toEqual([]);
    });

    test("destroy leaves only the Secrets", async () => {
      const { code, output } = await project.destroy("k8s-gpu");
      expect(code, output).toBe(0);
      const kinds = "deployments,services,networkpolicies,resourcequotas,configmaps,secrets";
      const left = await cluster.kubectl(
        ...["get", kinds, "--namespace", namespace, "--output=name"],
      );
      expect(left.trim().split("\n").sort()).toEqual([
        "configmap/kube-root-ca.crt",
        "secret/embed-key",
        "secret/embed-keys",
        "secret/embed-tls",
      ]);
    });

    /** The scheduler and the quota count advertised GPUs; no container uses one. */
    describe("on a node that advertises two GPUs", () => {
      const deployment = "deployment/clipstack-triton";
      const runtimeClass = {
        apiVersion: "node.k8s.io/v1",
        kind: "RuntimeClass",
        metadata: { name: "nvidia" },
        handler: "runc",
      };

      /** @param count - `null` advertises none */
      const offerGpus = async (count: string | null) => {
        const [node = ""] = (await cluster.kubectl("get", "nodes", "--output=name")).split("\n");
        const gpus = { "nvidia.com/gpu": count };
        await cluster.kubectl(
          ...["patch", node, "--subresource=status", "--type=merge"],
          ...["--patch", JSON.stringify({ status: { capacity: gpus, allocatable: gpus } })],
        );
      };
      const ofTritons = (kind: string, path: string) =>
        cluster.kubectl(
          ...["get", kind, "--namespace", namespace],
          ...["--selector", "app.kubernetes.io/component=triton", "--output", `jsonpath=${path}`],
        );

      beforeAll(async () => {
        await offerGpus("2");
        const { code, output } = await cluster.tryKubectl(
          ["apply", "--server-side", "--filename", "-"],
          JSON.stringify(runtimeClass),
        );
        expect(code, output).toBe(0);
        await settings("gpu");
      });
      afterAll(async () => {
        try {
          await project.destroy("k8s-gpu");
        } finally {
          await cluster.kubectl("delete", "runtimeclass", "nvidia", "--ignore-not-found");
          await offerGpus(null);
        }
      });

      test("two Triton servers get one each, with NVIDIA's RuntimeClass", async () => {
        const { code, output } = await project.deploy("k8s-gpu");
        expect(code, output).toBe(0);
        const pods = await ofTritons(
          "pods",
          '{range .items[*]}{.spec.runtimeClassName} {.spec.containers[0].resources.limits.nvidia\\.com/gpu} {.status.containerStatuses[0].ready}{"\\n"}{end}',
        );
        expect(pods.trim().split("\n")).toEqual(["nvidia 1 true", "nvidia 1 true"]);
      });

      test("the quota rejects a third", async () => {
        await cluster.kubectl("scale", deployment, "--replicas=3", "--namespace", namespace);
        await expect
          .poll(() => ofTritons("replicasets", "{.items[*].status.conditions[*].message}"), {
            timeout: 300_000,
          })
          .toContain(
            "exceeded quota: clipstack, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=2",
          );
      });
    });
  },
);
