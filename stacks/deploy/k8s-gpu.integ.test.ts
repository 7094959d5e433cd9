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

/** The gateway and two bundled Tritons behind it, from the chart, on a cluster that is there already. On the CPU. */

const { docker } = await testDocker();
const noProvider = async (name: "kubernetes" | "helm") =>
  (await findsProvider(name)) ? "" : `terraform init finds no provider for ${name}`;
const missing =
  (await missingForCluster()) ||
  (await missingForCharts()) ||
  (await noProvider("kubernetes")) ||
  (await noProvider("helm"));

describe.skipIf(missing !== "")(
  `k8s-gpu, deployed with cdktf on the CPU${missing && ` (not here: ${missing})`}`,
  () => {
    const namespace = "clipstack-gpu";
    let cluster: TestCluster;
    let project: TestProject;
    let image = "";

    beforeAll(async () => {
      cluster = await sharedCluster();
      image = await imageWithWeights(docker);
      await cluster.load(image);
      project = await testProject({ docker, variables: kindEnvironment });
      const limits = { cpuMillicores: 1_000, memoryMiB: 1_024 };
      await project.settings("k8s-gpu", {
        accelerator: "cpu",
        cluster: { kubeconfig: cluster.kubeconfig, context: cluster.context },
        namespace,
        embed: {
          image,
          resources: { requests: { cpuMillicores: 50, memoryMiB: 256 }, limits },
          autoscaler: { minReplicas: 1, maxReplicas: 2, cpuPercent: 400 },
        },
        triton: {
          engine: "bundled",
          image,
          resources: { requests: { cpuMillicores: 50, memoryMiB: 256 }, limits },
          autoscaler: { minReplicas: 2, maxReplicas: 2 },
        },
        scraping: "none",
        quota: {
          requests: { cpuMillicores: 600, memoryMiB: 4_096 },
          limits: { cpuMillicores: 8_000, memoryMiB: 8_192 },
          pods: 8,
        },
      });
    }, 600_000);
    afterAll(async () => {
      await project?.remove();
      if (image !== "") await docker.run("rmi", "--no-prune", image);
    });

    test("one deployment installs the chart and ends when every pod is ready", async () => {
      const { code, output } = await project.deploy("k8s-gpu");
      expect(code, output).toBe(0);
      const pods = await cluster.kubectl(
        ...["get", "pods", "--namespace", namespace, "--output"],
        'jsonpath={range .items[*]}{.metadata.labels.app\\.kubernetes\\.io/component} {.status.containerStatuses[0].ready}{"\\n"}{end}',
      );
      expect(pods.trim().split("\n").sort()).toEqual(["embed true", "triton true", "triton true"]);
    });

    test("verify finds nothing wrong with it", async () => {
      await autoscalersSee(cluster.kubeconfig);
      const { code, output } = await project.clipstack(
        ...["verify", "k8s-gpu", "--target", "deployed", "--seconds", "1"],
        ...["--report", join(project.folder, "reports")],
      );
      expect(code, output).toBe(0);
    });

    test("a second deployment has nothing to change", async () => {
      expect(await project.plan("k8s-gpu")).toEqual([]);
    });

    test("destroy leaves no namespace", async () => {
      const { code, output } = await project.destroy("k8s-gpu");
      expect(code, output).toBe(0);
      const namespaces = await cluster.kubectl("get", "namespaces", "--output=name");
      expect(namespaces).not.toContain(namespace);
    });
  },
);
