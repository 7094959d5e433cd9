import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { modelCatalogue } from "../../contract/models/index.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import {
  kindEnvironment,
  missingForCharts,
  missingForCluster,
  sharedCluster,
  type TestCluster,
  testNodePort,
} from "./test-cluster.ts";
import { command, succeed, testDocker } from "./test-docker.ts";
import { imageWithWeights } from "./test-image.ts";
import { embedOnce } from "./test-load.ts";

/** Applies every values file of the chart to a real API server as a dry run, and installs the one for kind. */

const { CLIPSTACK_KUBERNETES_SCHEMAS: schemas } = process.env;
const { docker } = await testDocker();
const missing = (await missingForCluster()) || (await missingForCharts());
const chart = fileURLToPath(new URL("../../helm/clipstack", import.meta.url));
const valuesFiles = readdirSync(chart).filter((name) => /^values-.*\.yaml$/.test(name));

/** Folder of the CRDs of KEDA and the Prometheus operator; empty if unavailable. */
const definitions = schemas === undefined ? "" : join(schemas, "crds", "definitions");

/** Reason why a plain API server cannot validate all objects of a values file; empty if it can. */
async function missingFor(file: string): Promise<string> {
  if (missing !== "" || definitions !== "") return "";
  const words = ["template", "clipstack", chart, "--values", join(chart, file)];
  const objects = await succeed("helm", words, { env: kindEnvironment });
  return /^apiVersion: (keda\.sh|monitoring\.coreos\.com)\//m.test(objects)
    ? "CLIPSTACK_KUBERNETES_SCHEMAS is not set: no definitions of KEDA and the Prometheus operator"
    : "";
}
const dryRuns = await Promise.all(
  valuesFiles.map(async (file) => ({ file, without: await missingFor(file) })),
);
const models = ["openclip-vit-b32", "dinov2-small"].map((name) => modelCatalogue.get(name)!);
const photo = await readFile(
  fileURLToPath(new URL("../../model-tools/samples/dunes.jpg", import.meta.url)),
);

describe.skipIf(missing !== "")(
  `the chart on a cluster${missing && ` (skipped: ${missing})`}`,
  () => {
    const namespace = "clipstack-chart";
    let cluster: TestCluster;

    const tryHelm = (...args: readonly string[]) =>
      command(
        "helm",
        [
          ...args,
          ...["--namespace", namespace],
          ...["--kubeconfig", cluster.kubeconfig, "--kube-context", cluster.context],
        ],
        { env: kindEnvironment, timeoutMs: 840_000 },
      );
    const runHelm = async (...args: readonly string[]) => {
      const { code, output } = await tryHelm(...args);
      expect(code, output).toBe(0);
      return output;
    };

    beforeAll(async () => {
      cluster = await sharedCluster();
      await cluster.kubectl("create", "namespace", namespace);
      // as in kind-local: the API server rejects pods that violate the policy
      const level = "pod-security.kubernetes.io/enforce=restricted";
      await cluster.kubectl("label", "namespace", namespace, level);
      if (definitions === "") return;
      await cluster.kubectl("apply", "--server-side", "-f", definitions);
      await cluster.kubectl(
        ...["wait", "--for=condition=established", "--timeout=300s", "-f", definitions],
      );
    });
    afterAll(async () => {
      await cluster?.kubectl("delete", "namespace", namespace, "--wait=false");
    });

    for (const { file, without } of dryRuns) {
      const name = `passes a dry run of the API server with ${file}`;
      test.skipIf(without !== "")(`${name}${without && ` (skipped: ${without})`}`, async () => {
        const values = ["--values", join(chart, file)];
        await runHelm("install", "clipstack", chart, ...values, "--dry-run=server");
        // Helm's own dry run does not send the objects
        const { stdout } = await tryHelm("template", "clipstack", chart, ...values);
        const { code, output } = await cluster.tryKubectl(
          ["apply", "--namespace", namespace, "--server-side", "--dry-run=server", "-f", "-"],
          stdout,
        );
        expect(code, output).toBe(0);
        expect(output).not.toContain("Warning");
      });
    }

    describe("installed with the values of kind and several models", () => {
      let image: string;
      const values = (more: readonly string[] = []) => [
        ...["--values", join(chart, "values-kind.yaml")],
        ...["--set", `embed.image.repository=${image.split(":")[0]}`],
        ...["--set", `embed.image.tag=${image.split(":")[1]}`],
        ...["--set", `embed.service.nodePort=${testNodePort}`],
        ...["--set-json", `models=${modelSettings(models).MODELS}`],
        ...more,
      ];

      beforeAll(async () => {
        image = await imageWithWeights(docker, models);
        await cluster.load(image);
      });
      afterAll(async () => {
        if (image !== undefined) await docker.run("rmi", "--no-prune", image);
      });

      test("is ready when helm returns, and embeds", async () => {
        await runHelm("install", "clipstack", chart, ...values(), "--wait", "--timeout", "600s");
        const vector = await embedOnce(`http://127.0.0.1:${cluster.hostPort}`, photo);
        expect(vector).toHaveLength(512);
      });

      test("passes helm test, which embeds with each tower", async () => {
        const output = await runHelm("test", "clipstack", "--timeout", "600s");
        expect(output).toMatch(/Phase:\s+Succeeded/);
      });

      test("an upgrade with the same values changes no pod", async () => {
        const pods = () =>
          cluster.kubectl("get", "pods", "--namespace", namespace, "--output=name");
        const before = await pods();
        await runHelm("upgrade", "clipstack", chart, ...values(), "--wait", "--timeout", "600s");
        expect(await pods()).toBe(before);
      });

      test("leaves nothing after uninstalling", async () => {
        await runHelm("uninstall", "clipstack", "--wait", "--timeout", "600s");
        const kinds =
          "deployments,services,horizontalpodautoscalers,poddisruptionbudgets,networkpolicies,resourcequotas,limitranges,serviceaccounts,configmaps,secrets";
        const left = await cluster.kubectl(
          ...["get", kinds, "--namespace", namespace, "--output=name"],
        );
        // present in every namespace
        expect(left.trim().split("\n").sort()).toEqual([
          "configmap/kube-root-ca.crt",
          "serviceaccount/default",
        ]);
      });
    });
  },
);
