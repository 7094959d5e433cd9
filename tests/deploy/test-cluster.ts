import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { stringify } from "yaml";
import { freePorts } from "../../artefact/free-ports.ts";
import { type CommandOptions, command, type Outcome, succeed, testDocker } from "./test-docker.ts";
import { until } from "./test-load.ts";

/**
 * Test fixture: a kind cluster on the tests' Docker engine. `CLIPSTACK_KIND_PATH` has the folders with `kind` and `kubectl`,
 * `CLIPSTACK_KIND_NODE_IMAGE` the node image; `.ci/kind` prints both. Default: the machine's kind and its own image.
 */
const { CLIPSTACK_KIND_PATH, CLIPSTACK_KIND_NODE_IMAGE, CLIPSTACK_HELM } = process.env;

/** `CLIPSTACK_HELM`: folder with `bin/helm`, as printed by `.ci/helm`; default: `helm` on the PATH. */
const helmFolder = CLIPSTACK_HELM && join(CLIPSTACK_HELM, "bin");

/** NodePort that is mapped to this machine. */
export const testNodePort = 30092;

/** Limit for creating a cluster, which may pull a node image. It only prevents hangs. */
const createMs = 900_000;

/** Limit of every other command. It only prevents hangs. */
const commandMs = 600_000;

const { docker, missing: noEngine } = await testDocker();

/** Environment variables for kind, kubectl and Terraform. */
export const kindEnvironment: NodeJS.ProcessEnv = {
  ...process.env,
  PATH: [CLIPSTACK_KIND_PATH, helmFolder, process.env.PATH].filter(Boolean).join(delimiter),
  DOCKER_HOST: docker.endpoint,
};

/** Unique cluster name. */
export const clusterName = () => `clipstack-test-${randomBytes(3).toString("hex")}`;

/** Reason why no cluster can be created here; empty if nothing is known to prevent it. */
export async function missingForCluster(): Promise<string> {
  if (noEngine !== "") return noEngine;
  for (const [program, word] of [
    ["kind", "version"],
    ["kubectl", "version --client"],
  ] as const) {
    const { code } = await command(program, word.split(" "), { env: kindEnvironment });
    if (code !== 0) return `no ${program}`;
  }
  if (CLIPSTACK_KIND_NODE_IMAGE === undefined) return "";
  const { code } = await command(
    "docker",
    ["--host", docker.endpoint, "image", "inspect", CLIPSTACK_KIND_NODE_IMAGE],
    {},
  );
  return code === 0 ? "" : `the engine has no image ${CLIPSTACK_KIND_NODE_IMAGE}`;
}

/** Reason why charts cannot be rendered here; empty if they can. */
export async function missingForCharts(): Promise<string> {
  return (await command("helm", ["version"], { env: kindEnvironment })).code === 0 ? "" : "no helm";
}

export interface TestCluster {
  readonly name: string;
  /** Context of the kubeconfig. */
  readonly context: string;
  readonly kubeconfig: string;
  /** Port of this machine that is mapped to {@link testNodePort}. */
  readonly hostPort: number;
  /** Output of `kubectl …`. @throws if it fails */
  kubectl(...args: readonly string[]): Promise<string>;
  /** Outcome of `kubectl …` with `input` as its standard input. */
  tryKubectl(args: readonly string[], input?: string): Promise<Outcome>;
  /** Loads an image of the engine into the node under the same name. */
  load(image: string): Promise<void>;
}

interface Made {
  readonly name: string;
  readonly hostPort: number;
}

/** Variable with the folder that lists the clusters of this run; see `test-cluster-removed.ts`. */
const folderVariable = "CLIPSTACK_TEST_CLUSTER_FOLDER";

/** Suffix of a file that lists a cluster. */
const noted = ".noted";

export function clustersFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-clusters-"));
  process.env[folderVariable] = folder;
  return folder;
}

function folderOfRun(): string {
  const folder = process.env[folderVariable];
  if (folder === undefined) throw new Error("only tests of the project 'cluster' have a cluster");
  return folder;
}

/** Registers a cluster for removal at the end of the run. Called before its creation, so that a partial cluster is removed too. */
export async function noteCluster(name: string): Promise<void> {
  await writeFile(join(folderOfRun(), `${name}${noted}`), "");
}

/** Removes registered clusters. Synchronous, because an exiting process does not await promises. */
export function removeNotedClusters(folder: string): void {
  if (!existsSync(folder)) return;
  for (const file of readdirSync(folder).filter((it) => it.endsWith(noted))) {
    const words = ["delete", "cluster", "--name", file.slice(0, -noted.length)];
    execFileSync("kind", [...words, "--kubeconfig", join(folder, "kubeconfig")], {
      env: kindEnvironment,
      stdio: "pipe",
      timeout: commandMs,
    });
    rmSync(join(folder, file));
  }
}

/** Returns the cluster of this run and creates it on first use. */
export async function sharedCluster(): Promise<TestCluster> {
  const folder = folderOfRun();
  const kubeconfig = join(folder, "kubeconfig");
  const record = join(folder, "cluster.json");
  if (!existsSync(record)) {
    // left incomplete by an earlier test file
    removeNotedClusters(folder);
    const [hostPort = 0] = await freePorts(1);
    const made: Made = { name: clusterName(), hostPort };
    await noteCluster(made.name);
    await createCluster(made, kubeconfig);
    await addMetricsServer(clusterOf(made, kubeconfig));
    // marks it as complete
    await writeFile(record, JSON.stringify(made));
  }
  return clusterOf(JSON.parse(await readFile(record, "utf8")), kubeconfig);
}

/** Returns undefined if there is no cluster of that name. */
export async function deleteCluster(name: string, kubeconfig: string): Promise<void> {
  await succeed("kind", ["delete", "cluster", "--name", name, "--kubeconfig", kubeconfig], {
    env: kindEnvironment,
    timeoutMs: commandMs,
  });
}

async function createCluster({ name, hostPort }: Made, kubeconfig: string): Promise<void> {
  const config = {
    kind: "Cluster",
    apiVersion: "kind.x-k8s.io/v1alpha4",
    nodes: [
      {
        role: "control-plane",
        extraPortMappings: [
          { containerPort: testNodePort, hostPort, listenAddress: "127.0.0.1", protocol: "TCP" },
        ],
      },
    ],
  };
  const file = `${kubeconfig}.kind.yaml`;
  await writeFile(file, stringify(config));
  await succeed(
    "kind",
    [
      ...["create", "cluster", "--name", name, "--kubeconfig", kubeconfig],
      ...["--config", file, "--wait", "300s"],
      ...(CLIPSTACK_KIND_NODE_IMAGE === undefined ? [] : ["--image", CLIPSTACK_KIND_NODE_IMAGE]),
    ],
    { env: kindEnvironment, timeoutMs: createMs },
  );
}

/** Installs metrics-server, which autoscalers need and kind does not include. */
async function addMetricsServer(cluster: TestCluster): Promise<void> {
  // imported lazily, because it synthesizes a stack
  const { metricsServerManifests } = await import("./test-metrics-server.ts");
  const { code, output } = await cluster.tryKubectl(
    ["apply", "--server-side", "-f", "-"],
    metricsServerManifests(),
  );
  if (code !== 0) throw new Error(output);
  await cluster.kubectl(
    ...["wait", "--for=condition=Available", "--timeout=300s", "apiservice/v1beta1.metrics.k8s.io"],
  );
}

/**
 * Waits until every autoscaler of a cluster has metrics of its pods; metrics-server has none in the first half minute of a pod.
 */
export async function autoscalersSee(kubeconfig: string): Promise<void> {
  interface Autoscalers {
    readonly items: readonly {
      readonly status: {
        readonly currentMetrics?:
          | readonly { readonly resource?: { readonly current: { averageUtilization?: number } } }[]
          | null;
      };
    }[];
  }
  const words = ["get", "horizontalpodautoscalers", "--all-namespaces", "--output=json"];
  await until(async () => {
    await sleep(1_000);
    const text = await succeed("kubectl", ["--kubeconfig", kubeconfig, ...words], {
      env: kindEnvironment,
    });
    return (JSON.parse(text) as Autoscalers).items.every(({ status }) =>
      status.currentMetrics?.some((it) => it.resource?.current.averageUtilization !== undefined),
    );
  });
}

/** Opens an existing kind cluster. */
export function clusterOf({ name, hostPort }: Made, kubeconfig: string): TestCluster {
  const context = `kind-${name}`;
  const where = ["--kubeconfig", kubeconfig, "--context", context];
  const options: CommandOptions = { env: kindEnvironment, timeoutMs: commandMs };
  return {
    name,
    context,
    kubeconfig,
    hostPort,
    kubectl: (...args) => succeed("kubectl", [...where, ...args], options),
    tryKubectl: (args, input) => command("kubectl", [...where, ...args], { ...options, input }),
    load: async (image) => {
      await succeed("kind", ["load", "docker-image", "--name", name, image], options);
    },
  };
}
