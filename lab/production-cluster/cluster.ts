import { randomBytes } from "node:crypto";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { execa } from "execa";
import { parseAllDocuments, stringify } from "yaml";
import { readReleases } from "../../artefact/artefact.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import type { HelmRelease } from "../../artefact/helm-template.ts";
import { servedTowers, towerFolder } from "../../constructs/models/served-towers.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { modelsArgument } from "../../contract/server/model-list.ts";
import { ensureTinyModel } from "../../model-tools/generate/generate.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import { type ServiceMonitor, scrapeConfig } from "./scrape-config.ts";

/** A kind cluster with Traefik, Prometheus and KEDA. The README describes the variables. */

export const project = fileURLToPath(new URL("../../", import.meta.url));
const { CLIPSTACK_KIND_NODE_IMAGE, CLIPSTACK_KIND_PATH, CLIPSTACK_HELM } = process.env;
const { CLIPSTACK_TEST_DOCKER_HOST: engine, PATH } = process.env;
/** Host names of the certificate. */
export const hosts = { embed: "localhost", ingress: "ingress.localhost", grpc: "grpc.localhost" };
/** Base of the images of single programs. */
export const base = process.env.CLIPSTACK_NODE_IMAGE ?? "node:24.21.0-bookworm-slim";

/** Environment of the programs that the laboratory runs. */
const programEnv: Readonly<Record<string, string | undefined>> = {
  PATH: [CLIPSTACK_KIND_PATH, CLIPSTACK_HELM && join(CLIPSTACK_HELM, "bin"), PATH]
    .filter(Boolean)
    .join(delimiter),
  ...(engine !== undefined && { DOCKER_HOST: engine }),
};

interface RunOptions {
  readonly input?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a program in the project's folder. Words of `line` are separated by spaces. @throws unless `reject` is false */
export function start(line: string, { input, env }: RunOptions = {}, reject = true) {
  const [program = "", ...args] = line.split(" ");
  const all = { ...programEnv, ...env };
  const options = { cwd: project, env: all, timeout: 900_000, reject };
  return execa(program, args, input === undefined ? options : { ...options, input });
}

/** @returns Standard output. */
export async function run(line: string, options?: RunOptions): Promise<string> {
  return (await start(line, options)).stdout;
}

/** Variables and programs that are missing on this machine. */
export async function missingParts(
  variables: readonly string[],
  programs: readonly string[] = [],
): Promise<readonly string[]> {
  const unset = variables.filter((name) => !process.env[name]).map((name) => `${name} is not set`);
  const absent = await Promise.all(
    ["docker", "kind", "helm", ...programs].map(async (program) =>
      (await start(`${program} version`, {}, false)).exitCode === 0 ? [] : [`no ${program}`],
    ),
  );
  return [...unset, ...absent.flat()];
}

export interface LabCluster {
  readonly context: string;
  readonly kubeconfig: string;
  /** Container of the only node. */
  readonly node: string;
  /** Port of this machine that is the node's port 30443. */
  readonly port: number;
  /** Temporary folder; `ca.crt` is the certificate of the authority that signed the Gateway's. */
  readonly folder: string;
  /** Runs kubectl. Words are separated by spaces. */
  kubectl(line: string, input?: string): Promise<string>;
  /** Creates the Secret `localhost-tls` with the certificate of `folder`. */
  certificateSecret(namespace: string): Promise<string>;
  /** Loads an image of the engine. */
  load(image: string): Promise<void>;
  remove(): Promise<void>;
}

/** @param settings - Further fields of kind's configuration. */
export async function createCluster(settings: object = {}): Promise<LabCluster> {
  const name = `clipstack-lab-${randomBytes(3).toString("hex")}`;
  const folder = await mkdtemp(join(tmpdir(), "clipstack-lab-"));
  const kubeconfig = join(folder, "kubeconfig");
  // synthesized files address the chart relative to their folder
  await symlink(join(project, "helm"), join(folder, "helm"));
  const [hostPort = 0] = await freePorts(1);
  const mapping = { containerPort: 30_443, hostPort, listenAddress: "127.0.0.1" };
  const node = { role: "control-plane", extraPortMappings: [mapping] };
  const config = {
    kind: "Cluster",
    apiVersion: "kind.x-k8s.io/v1alpha4",
    nodes: [node],
    ...settings,
  };
  const remove = async () => {
    await run(`kind delete cluster --name ${name} --kubeconfig ${kubeconfig}`);
    await rm(folder, { recursive: true, force: true });
  };
  const image =
    CLIPSTACK_KIND_NODE_IMAGE === undefined ? "" : ` --image ${CLIPSTACK_KIND_NODE_IMAGE}`;
  try {
    await run(
      `kind create cluster --name ${name} --kubeconfig ${kubeconfig} --wait 300s --config -${image}`,
      { input: stringify(config) },
    );
  } catch (error) {
    await remove();
    throw error;
  }
  const context = `kind-${name}`;
  const kubectl = (line: string, input?: string) =>
    run(`kubectl --kubeconfig ${kubeconfig} --context ${context} ${line}`, { input });
  const pair = `--cert=${folder}/tls.crt --key=${folder}/tls.key`;
  return {
    ...{ context, kubeconfig, folder, remove, node: `${name}-control-plane`, port: hostPort },
    kubectl,
    certificateSecret: (namespace) =>
      kubectl(`create secret tls localhost-tls -n ${namespace} ${pair}`),
    load: async (image) => void (await run(`kind load docker-image --name ${name} ${image}`)),
  };
}

/** Synthesizes an environment of the cluster, and returns its release. */
export async function synthesized(
  { kubeconfig, context, folder }: LabCluster,
  name: string,
  settings: object,
): Promise<HelmRelease> {
  const env = labEnv(folder);
  await mkdir(env.CLIPSTACK_ENVIRONMENTS_DIR, { recursive: true });
  const text = stringify({ ...settings, cluster: { kubeconfig, context } });
  await writeFile(join(env.CLIPSTACK_ENVIRONMENTS_DIR, `${name}.yaml`), text);
  await run("npm run --silent synth", { env });
  const file = join(env.CDKTF_OUTDIR, `stacks/${name}/cdk.tf.json`);
  return readReleases(file, file)[0]!;
}

/** Variables of commands that read the environments of the cluster. */
export const labEnv = (folder: string) => ({
  CLIPSTACK_ENVIRONMENTS_DIR: join(folder, "environments"),
  CDKTF_OUTDIR: join(folder, "cdktf.out"),
});

/** Runs helm with the chart and the values of a release, and further values. */
export async function helm(
  { folder, kubeconfig, context }: LabCluster,
  action: string,
  { chart, values }: HelmRelease,
  more: object = {},
): Promise<string> {
  await writeFile(join(folder, "values.yaml"), values[0] ?? "");
  const where = `--kubeconfig ${kubeconfig} --kube-context ${context}`;
  return run(`helm ${action} ${chart} --values ${folder}/values.yaml --values - ${where}`, {
    input: stringify(more),
  });
}

/** Builds an image from a folder that `prepare` fills. */
export async function build(
  image: string,
  options: string,
  prepare: (context: string) => Promise<unknown>,
  input = "",
) {
  const context = await mkdtemp(join(tmpdir(), "clipstack-lab-image-"));
  try {
    await prepare(context);
    await run(`docker build --tag ${image} ${options.replace("CONTEXT", context)} ${context}`, {
      input,
    });
  } finally {
    await rm(context, { recursive: true, force: true });
  }
  return image;
}

/** Builds the embed image with tiny weights. */
export async function embedImage(): Promise<string> {
  const server = await run(".ci/test-images embed");
  const args = `--build-arg IMAGE=${server} --build-arg MODELS=${modelsArgument(defaultModels)}`;
  const options = `--file CONTEXT/image/Dockerfile.weights ${args}`;
  return build("local/clipstack-embed:lab", options, async (context) => {
    const filter = (path: string) => !/model\.[\w.-]*onnx(\.json)?$/.test(path);
    await cp(join(project, "model_repository"), context, {
      recursive: true,
      verbatimSymlinks: true,
      filter,
    });
    await writeModelRepository(
      defaultModels.map((spec) => ({ spec })),
      context,
    );
    for (const tower of servedTowers(defaultModels)) {
      const file = join(context, towerFolder(tower, "fp32"), "1", "model.onnx");
      await mkdir(dirname(file), { recursive: true });
      await cp(await ensureTinyModel(tower.spec, tower.modality), file);
    }
  });
}

/** Installs the Gateway API, Traefik with a certificate of a test authority, Prometheus and KEDA. */
export async function installComponents({
  kubectl,
  load,
  folder,
  certificateSecret,
}: LabCluster): Promise<void> {
  const { CLIPSTACK_KEDA: keda = "", CLIPSTACK_GATEWAY_API: crds = "" } = process.env;
  const { CLIPSTACK_KUBERNETES_SCHEMAS: schemas = "", CLIPSTACK_TRAEFIK: traefik = "" } =
    process.env;
  const registry = "ghcr.io/kedacore";
  for (const [image, file, path] of [
    ["local/traefik:lab", traefik, "/traefik"],
    [`${registry}/keda:main`, join(keda, "keda-operator"), "/keda"],
    [`${registry}/keda-metrics-apiserver:main`, join(keda, "keda-adapter"), "/keda-adapter"],
  ] as const) {
    const dockerfile = `FROM ${base}\nCOPY program ${path}\nUSER 1000:1000\nENTRYPOINT ["${path}"]\n`;
    await load(
      await build(image, "--file -", (context) => cp(file, join(context, "program")), dockerfile),
    );
  }
  await load(await run(".ci/test-images prometheus"));

  const monitors = "crds/definitions/monitoring.coreos.com_servicemonitors.yaml";
  for (const file of [crds, join(schemas, monitors)]) {
    await kubectl(`apply --server-side --filename ${file}`);
  }
  await kubectl("wait --for=condition=established --timeout=60s crd --all");
  await certificate(folder);
  await kubectl("create namespace gateway");
  await certificateSecret("gateway");
  await kubectl(`apply --filename ${join(project, "lab/production-cluster/components.yaml")}`);
  const objects = parseAllDocuments(await kubectl(`kustomize ${join(keda, "config/default")}`))
    .map((document) => document.toJS())
    // they validate objects
    .filter(({ metadata }) => !/webhook|admission/.test(metadata.name))
    .map((object) => JSON.stringify(object));
  const text = objects
    .join("\n---\n")
    .replaceAll('"imagePullPolicy":"Always"', '"imagePullPolicy":"Never"')
    .replace(
      '"--enable-cert-rotation=true"',
      '"--enable-cert-rotation=true","--enable-webhook-patching=false"',
    );
  await kubectl("apply --server-side --filename -", text);
  for (const namespace of ["gateway", "monitoring", "keda"]) {
    await kubectl(`wait --for=condition=Available --timeout=300s --all deployment -n ${namespace}`);
  }
}

async function certificate(folder: string): Promise<void> {
  const key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
  const names = `-subj /CN=localhost -addext subjectAltName=${Object.values(hosts)
    .map((host) => `DNS:${host}`)
    .join()}`;
  for (const line of [
    `req -x509 ${key} -days 2 -subj /CN=test-ca -keyout ca.key -out ca.crt`,
    `req ${key} ${names} -keyout tls.key -out tls.csr`,
    "x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out tls.crt",
  ]) {
    await execa("openssl", line.split(" "), { cwd: folder });
  }
}

/**
 * Configures Prometheus whenever a ServiceMonitor or an endpoint in the cluster changes, in place of its operator, until the signal
 * aborts.
 */
export async function followObjects({ kubectl }: LabCluster, signal: AbortSignal): Promise<void> {
  const list = async (kind: string) =>
    JSON.parse(await kubectl(`get ${kind} --all-namespaces --output=json`)).items;
  const applied = new Map<string, string>();
  const apply = async (command: string, text: string) => {
    if (applied.get(command) === text) return;
    await kubectl(`exec -i ${command}`, text);
    applied.set(command, text);
  };
  const update = async () => {
    const secrets: { metadata: ServiceMonitor["metadata"]; data: Record<string, string> }[] =
      await list("secrets");
    const slices = await list("endpointslices");
    const config = scrapeConfig(await list("servicemonitors"), slices, (namespace, name, key) => {
      const found = secrets.find(
        (it) => it.metadata.namespace === namespace && it.metadata.name === name,
      );
      return Buffer.from(found?.data[key] ?? "", "base64").toString();
    });
    const text = stringify(config, { aliasDuplicateObjects: false });
    await apply("-n monitoring deployment/prometheus -- sh /scripts/reload.sh", text);
  };
  while (!signal.aborted) {
    await update().catch((error: unknown) => console.error(`not configured: ${error}`));
    await sleep(2_000, undefined, { signal }).catch(() => {});
  }
}
