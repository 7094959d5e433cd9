import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  autoscalersSee,
  kindEnvironment,
  missingForCharts,
  missingForCluster,
  sharedCluster,
  type TestCluster,
} from "./test-cluster.ts";
import { testDocker } from "./test-docker.ts";
import { imageWithWeights } from "./test-image.ts";
import { findsProvider } from "./test-kind-project.ts";
import { type TestProject, testProject } from "./test-project.ts";

/** A gateway and two Triton servers from the chart on an existing cluster, on the CPU. */

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

    /** With `gpu`, the embed image replaces NVIDIA's image, because it accepts the same command. */
    const settings = (accelerator: "cpu" | "gpu") => {
      const limits = { cpuMillicores: 1_000, memoryMiB: 1_024 };
      return project.settings("k8s-gpu", {
        accelerator,
        cluster: { kubeconfig: cluster.kubeconfig, context: cluster.context },
        nodePool: { gpu: "l4", nodes: 1, gpusPerNode: 2 },
        namespace,
        embed: {
          image,
          resources: { requests: { cpuMillicores: 50, memoryMiB: 256 }, limits },
          autoscaler: { minReplicas: 1, maxReplicas: 2, cpuPercent: 400 },
        },
        triton: {
          server: accelerator === "gpu" ? "tritonserver" : "emulator",
          image,
          resources: { requests: { cpuMillicores: 50, memoryMiB: 256 }, limits },
          autoscaler: { minReplicas: 2, maxReplicas: 2 },
        },
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
      project = await testProject({ docker, variables: kindEnvironment });
      await settings("cpu");
    });
    afterAll(async () => {
      await project?.remove();
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

    test("verify passes", async () => {
      await autoscalersSee(cluster.kubeconfig);
      const { code, output } = await project.clipstack(
        ...["verify", "k8s-gpu", "--target", "deployed", "--seconds", "1"],
        ...["--report", join(project.folder, "reports")],
      );
      expect(code, output).toBe(0);
    });

    test("a second deployment plans no change", async () => {
      expect(await project.plan("k8s-gpu")).toEqual([]);
    });

    test("destroy leaves no namespace", async () => {
      const { code, output } = await project.destroy("k8s-gpu");
      expect(code, output).toBe(0);
      const namespaces = await cluster.kubectl("get", "namespaces", "--output=name");
      expect(namespaces).not.toContain(namespace);
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
