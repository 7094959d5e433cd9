import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { stringify } from "yaml";
import { shippedStacks } from "../../stacks/settings/environment-files.ts";
import { parseEnvironment } from "../../stacks/settings/settings.ts";
import { writeStacks } from "../../stacks/write-stacks.ts";
import {
  kindEnvironment,
  missingForCluster,
  sharedCluster,
  type TestCluster,
} from "../../tests/deploy/test-cluster.ts";
import { findsProvider } from "../../tests/deploy/test-kind-project.ts";
import { providerEnvironment } from "../../tests/deploy/test-providers.ts";
import {
  actionLines,
  type ClusterPlanCase,
  clusterPlanCases,
  planLines,
  reviewedParts,
} from "../test-plans.ts";

/**
 * Creates the plans of `clusterPlanCases` with the Kubernetes and Helm providers on a real cluster and compares their actions with the
 * saved plans in `plans/`. No pod has to run: steps that wait for pods, build images or create clusters are removed from the stacks.
 * `CLIPSTACK_WRITE_PLANS=1` overwrites the saved plans.
 */

const root = fileURLToPath(new URL("../../", import.meta.url));
const plans = fileURLToPath(new URL("./plans/", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "clipstack-review-cluster-"));
const places = await providerEnvironment(folder);

const noProvider = async (name: "kubernetes" | "helm") =>
  (await findsProvider(name)) ? "" : `terraform init finds no provider ${name}`;
const missing =
  (await missingForCluster()) || (await noProvider("kubernetes")) || (await noProvider("helm"));

const limits = { cpuMillicores: 1_000, memoryMiB: 1_536 };
const requests = { cpuMillicores: 250, memoryMiB: 1_024 };

interface Document {
  readonly resource: Record<string, Record<string, Record<string, unknown>>>;
  readonly provider: Record<string, unknown>;
  readonly terraform: Record<string, unknown>;
}

describe.skipIf(missing !== "")(
  `plans of the providers for Kubernetes and Helm${missing && ` (not here: ${missing})`}`,
  () => {
    let cluster: TestCluster;
    beforeAll(async () => {
      cluster = await sharedCluster();
      symlinkSync(join(root, "helm"), join(folder, "helm"), "dir");
    });
    afterAll(async () => {
      for (const environment of applied) terraform(environment, "destroy", "-auto-approve");
      rmSync(folder, { recursive: true, force: true });
    });

    const applied = new Set<ClusterPlanCase["environment"]>();
    const cwdOf = (environment: string) => join(folder, "cdktf.out", "stacks", environment);

    function terraform(environment: string, ...args: readonly string[]): string {
      const { status, stdout, stderr } = spawnSync("terraform", [...args, "-no-color"], {
        cwd: cwdOf(environment),
        env: { ...kindEnvironment, ...places, CHECKPOINT_DISABLE: "1" },
        encoding: "utf8",
        timeout: 240_000,
        maxBuffer: 64 * 1024 * 1024,
      });
      expect(status, `${stdout.slice(-4_000)}\n${stderr}`).toBe(0);
      return stdout;
    }

    function write(environment: ClusterPlanCase["environment"], change: ClusterPlanCase["change"]) {
      const { context, kubeconfig } = cluster;
      const replicas = change.maxReplicas ?? 6;
      const settings = {
        "kind-local": {
          cluster: { name: cluster.name, kubeconfig },
          namespace: change.namespace ?? "clipstack-typed",
          deployWith: change.deployWith ?? "kubernetes",
          embed: {
            resources: { requests, limits: { ...limits, memoryMiB: change.memoryMiB ?? 1_536 } },
          },
          autoscaler: { minReplicas: 2, maxReplicas: replicas },
        },
        "k8s-gpu": {
          cluster: { kubeconfig, context },
          nodePool: { gpu: change.gpu ?? "l4", nodes: 4, gpusPerNode: 1 },
          namespace: change.namespace ?? "clipstack-chart",
          embed: {
            image: "registry.example/clipstack/embed:0.1.0",
            autoscaler: { minReplicas: 2, maxReplicas: replicas },
          },
          triton: {
            image: `registry.example/clipstack/triton:${change.tritonTag ?? "26.07-1"}`,
            autoscaler: { minReplicas: 2, maxReplicas: 2 },
          },
          scraping: "none",
          quota: {
            gpus: 4,
            requests: { cpuMillicores: 14_000, memoryMiB: 26_624 },
            limits: { cpuMillicores: 35_000, memoryMiB: 53_248 },
            pods: 14,
          },
        },
      }[environment];
      const yaml = stringify({ stack: shippedStacks[environment], ...settings });
      const outdir = join(folder, "cdktf.out");
      const { rejected } = writeStacks([parseEnvironment(environment, "test", yaml)], { outdir });
      expect(rejected).toEqual([]);
      const file = join(cwdOf(environment), "cdk.tf.json");
      writeFileSync(file, plannable(JSON.parse(readFileSync(file, "utf8"))));
    }

    for (const { name, environment, deployed, change, destroy } of clusterPlanCases) {
      test(`${name}: the plan has the actions of the saved plan`, () => {
        write(environment, {});
        if (!applied.has(environment)) terraform(environment, "init", "-input=false");
        if (deployed && !applied.has(environment)) {
          applied.add(environment);
          terraform(environment, "apply", "-input=false", "-auto-approve");
        }
        write(environment, change);
        terraform(
          environment,
          ...["plan", "-input=false", "-out=plan"],
          ...(destroy ? ["-destroy"] : []),
        );
        const plan = reviewedParts(
          JSON.parse(portable(terraform(environment, "show", "-json", "plan"))),
        );
        const saved = join(plans, `${name}.plan.json`);
        if (process.env.CLIPSTACK_WRITE_PLANS === "1") writeFileSync(saved, planLines({ ...plan }));
        expect(actionLines(plan)).toEqual(
          actionLines(reviewedParts(JSON.parse(readFileSync(saved, "utf8")))),
        );
      });
    }

    const portable = (text: string) =>
      text
        .replaceAll(folder, "/project")
        .replaceAll(cluster.kubeconfig, "/home/user/.kube/config")
        .replaceAll(cluster.name, "clipstack")
        .replaceAll(homedir(), "/home/user");
  },
);

/** Keeps only the parts of a stack that the Kubernetes and Helm providers can apply without running pods. */
function plannable(document: Document): string {
  const { docker_image: _images, ...resources } = document.resource;
  const { docker: _docker, ...provider } = document.provider;
  const kept = Object.entries(resources).map(([type, ofType]) => [
    type,
    Object.fromEntries(
      Object.entries(ofType)
        // installed in the test cluster
        .filter(([id]) => !id.startsWith("metrics-server"))
        .map(([id, { provisioner: _programs, depends_on: dependencies = [], ...resource }]) => [
          id,
          {
            ...resource,
            depends_on: (dependencies as readonly string[]).filter(
              (it) => !/^docker_image\.|\.metrics-server/.test(it),
            ),
          },
        ]),
    ),
  ]);
  const { docker: _source, ...required } = document.terraform.required_providers as Record<
    string,
    unknown
  >;
  return JSON.stringify(
    {
      ...document,
      provider,
      resource: Object.fromEntries(
        kept.filter(([, ofType]) => Object.keys(ofType as object).length > 0),
      ),
      terraform: {
        required_providers: required,
        backend: { local: { path: "terraform.tfstate" } },
      },
    },
    undefined,
    1,
  ).replaceAll(/\$\{docker_image\.[\w-]+\.name\}/g, "clipstack/embed:k8s-cpu-0123456789ab");
}
