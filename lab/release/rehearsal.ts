import { createHash } from "node:crypto";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { execa } from "execa";
import { parseDocument, stringify } from "yaml";
import { freePorts } from "../../artefact/free-ports.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelPath } from "../../contract/repository-files.ts";
import { packageFolder, packageVersion } from "../../model-tools/files/folders.ts";
import { ensureTinyModel } from "../../model-tools/generate/generate.ts";
import { recordText, reportName } from "../../report/save-reports.ts";
import { runMain } from "../load/run-main.ts";
import { createCluster, missingParts, run, start } from "../production-cluster/cluster.ts";
import {
  answered,
  forward,
  serveFile,
  startImageRegistry,
  startNpmRegistry,
  stopServers,
} from "./registries.ts";

const usage = `npm run lab -- release-rehearsal [--report FOLDER]

Publishes the packages, the embed image and the chart to registries of this machine, and then takes the path of a user who has only these
registries: npm create, clipstack verify, cdktf deploy, @clipstack/review, npm update to a second version, docker run by digest, and helm
install on a kind cluster. Writes a record with the time of every step; leaves nothing behind.

  --report FOLDER          folder of the record (default: bench/reports)

  CLIPSTACK_VERDACCIO      npm registry: $(.ci/npm-registry)
  docker-registry          OCI registry: Debian's package
  terraform, helm, kind    and the variables of lab/production-cluster/README.md

Exit codes: 0 success or a program is missing, 1 a step failed, 2 wrong usage.`;

interface Step {
  readonly by: "release" | "user";
  readonly name: string;
  readonly seconds: number;
  readonly observed?: string;
}

const version = packageVersion();
const nextVersion = version.replace(/\d+$/, (patch) => String(Number(patch) + 1));
const environment = "rehearsal";
const engine = process.env.CLIPSTACK_TEST_DOCKER_HOST ?? process.env.DOCKER_HOST;
const steps: Step[] = [];
/** Work that undoes a step, run in reverse order. */
const undone: (() => Promise<unknown>)[] = [];

/** Runs a step, and records its time and the text that it returns. */
async function step(by: Step["by"], name: string, work: () => Promise<string | undefined>) {
  const start = performance.now();
  const observed = await work();
  const seconds = Math.round((performance.now() - start) / 100) / 10;
  steps.push({ by, name, seconds, ...(observed !== undefined && { observed }) });
  console.log(`${`${by}: ${name}`.padEnd(70)} ${seconds.toFixed(1)} s  ${observed ?? ""}`);
}

/** First match in the output of a step. @throws if there is none */
function match(output: string, pattern: RegExp): string {
  const found = pattern.exec(output);
  if (found === null) throw new Error(`no ${pattern} in:\n${output.slice(-2_000)}`);
  return found[1] ?? found[0];
}

interface Rehearsal {
  readonly folder: string;
  readonly npmPort: number;
  readonly registry: string;
  /** File of the model whose embeddings mean nothing. */
  readonly model: string;
  /**
   * Runs a program of the user, without the settings, packages and cache of this machine's user.
   *
   * @returns Its output; with `reject: false` also its error output, and any exit code is accepted.
   */
  readonly user: (line: string, cwd?: string, reject?: boolean) => Promise<string>;
}

async function prepare(folder: string): Promise<Rehearsal> {
  const [npmPort = 0, ociPort = 0] = await freePorts(2);
  const mirror = process.env.CLIPSTACK_TF_PLUGIN_DIR;
  await mkdir(join(folder, "share/terraform"), { recursive: true });
  if (mirror !== undefined) {
    await cp(mirror, join(folder, "share/terraform/plugins"), { recursive: true });
  }
  await writeFile(join(folder, "terraform.rc"), "");
  const env = {
    npm_config_registry: `http://127.0.0.1:${npmPort}/`,
    npm_config_userconfig: join(folder, "npmrc"),
    npm_config_cache: join(folder, "npm-cache"),
    ...(engine !== undefined && { DOCKER_HOST: engine }),
    ...{ CHECKPOINT_DISABLE: "1", CI: "1", TF_CLI_CONFIG_FILE: join(folder, "terraform.rc") },
    XDG_DATA_DIRS: [join(folder, "share"), "/usr/local/share", "/usr/share"].join(delimiter),
  };
  const user = async (line: string, cwd = folder, reject = true) => {
    const [program = "", ...args] = line.split(" ");
    const options = { cwd, env, reject, stdin: "ignore", timeout: 900_000 } as const;
    const { stdout, stderr } = await execa(program, args, options);
    return reject ? stdout : `${stdout}\n${stderr}`;
  };
  const model = await ensureTinyModel(defaultModel);
  return { folder, npmPort, registry: `127.0.0.1:${ociPort}`, model, user };
}

/** Pushes an image of the engine, and returns its digest. */
async function push(image: string, name: string): Promise<string> {
  await run(`docker tag ${image} ${name}`);
  const digest = match(await run(`docker push ${name}`), /digest: (sha256:[0-9a-f]{64})/);
  const pulled = name.replace(/:[^:]*$/, `@${digest}`);
  // first in the list, so that it runs after the removal of containers; absent ones are no errors with --force
  undone.unshift(() => run(`docker rmi --force ${name} ${pulled}`));
  return digest;
}

/** Publishes everything, as release.yml does. @returns The digest of the embed image. */
async function publish({ folder, registry, user }: Rehearsal, image: string): Promise<string> {
  let digest = "";
  await step("release", "docker push of the embed image", async () => {
    digest = await push(image, `${registry}/clipstack/embed:${version}-cpu`);
    return digest;
  });
  await step("release", "helm package and helm push", async () => {
    await run(`helm package helm/clipstack --destination ${folder}`);
    const chart = `${folder}/clipstack-${version}.tgz oci://${registry}/charts --plain-http`;
    const { stdout, stderr } = await start(`helm push ${chart}`);
    return match(stdout + stderr, /Digest: (sha256:\w+)/);
  });
  const packed = join(folder, "packed");
  await step("release", "node tools/release.mjs pack", async () => {
    const options = `--registry ${registry} --image embed-cpu=${digest}`;
    await run(`node tools/release.mjs pack ${packed} ${options}`);
    return (await readdir(packed)).join(", ");
  });
  await step("release", "npm publish of every package", async () => {
    for (const file of await readdir(packed)) await user(`npm publish ${join(packed, file)}`);
    return undefined;
  });
  return digest;
}

/** From nothing to a verified environment in two commands. */
async function createProject({ user, folder }: Rehearsal): Promise<string> {
  const project = join(folder, "my-inference");
  await step("user", "npm create clipstack, with npm install", async () => {
    const options = `-- --stack single-gpu --environment ${environment}`;
    await user(`npm create --yes clipstack@${version} my-inference ${options}`);
    return undefined;
  });
  await step("user", "npx clipstack verify, in a local simulation", async () =>
    match(
      await user(`npx clipstack verify ${environment} --weights tiny`, project),
      /^\d+ checks passed/m,
    ),
  );
  return project;
}

async function setSettings(project: string, settings: Readonly<Record<string, unknown>>) {
  const file = join(project, "environments", `${environment}.yaml`);
  const document = parseDocument(await readFile(file, "utf8"));
  for (const [path, value] of Object.entries(settings)) document.setIn(path.split("."), value);
  await writeFile(file, String(document));
}

async function deploy({ user, model }: Rehearsal, project: string, digest: string): Promise<void> {
  const [embed, http, grpc, metrics] = await freePorts(4);
  await setSettings(project, {
    accelerator: "cpu",
    ...(engine !== undefined && { "host.docker": engine }),
    "embed.port": embed,
    "tritonOnnx.server": "emulator",
    "tritonOnnx.ports": { http, grpc, metrics },
    "tritonTrt.enabled": false,
    allowRandomWeights: true,
  });
  const weights = join(project, "model_repository", modelPath(defaultModel, "fp32"));
  await mkdir(dirname(weights), { recursive: true });
  await cp(model, weights);
  await step("user", "npx clipstack images", async () =>
    match(
      await user(`npx clipstack images ${environment}`, project),
      new RegExp(`\\S+/embed@${digest}`),
    ),
  );
  undone.push(() => user(`npx cdktf destroy ${deployOptions}`, project));
  await deployAgain({ user }, project);
}

const deployOptions = `${environment} --auto-approve --skip-provider-lock`;

async function deployAgain({ user }: Pick<Rehearsal, "user">, project: string): Promise<void> {
  await step("user", "npx cdktf deploy, on Docker", async () =>
    match(await user(`npx cdktf deploy ${deployOptions}`, project), /Resources: [^.]*/),
  );
  const verify = `npx clipstack verify ${environment} --target deployed`;
  await step("user", "npx clipstack verify --target deployed", async () =>
    match(await user(verify, project), /^\d+ checks passed/m),
  );
}

/** Reviews the plan of a changed port with the published review, in a folder without anything else. */
async function review({ user, folder }: Rehearsal, project: string): Promise<void> {
  const file = join(project, "environments", `${environment}.yaml`);
  const before = await readFile(file);
  const [embed] = await freePorts(1);
  await setSettings(project, { "embed.port": embed });
  await user("npx clipstack synth", project);
  await writeFile(file, before);
  const stack = join(project, "cdktf.out/stacks", environment);
  await user(`terraform plan -input=false -out=${folder}/plan`, stack);
  const elsewhere = join(folder, "elsewhere");
  await mkdir(elsewhere);
  const plan = await user(`terraform show -json ${folder}/plan`, stack);
  await writeFile(join(elsewhere, "plan.json"), plan);
  await step("user", "npx @clipstack/review plan.json", async () => {
    const line = `npx --yes @clipstack/review@${version} plan.json`;
    return match(await user(line, elsewhere, false), /^## .*/m);
  });
}

/** Publishes the same code as the next version, with another image, and upgrades the project. */
async function upgrade(rehearsal: Rehearsal, project: string, image: string): Promise<void> {
  const { folder, registry, user } = rehearsal;
  const name = `${registry}/clipstack/embed:${nextVersion}-cpu`;
  await run(`docker build --tag ${name} -`, {
    input: `FROM ${image}\nLABEL org.opencontainers.image.version=${nextVersion}\n`,
  });
  const digest = await push(name, name);
  await run(`tar -xzf ${folder}/packed/clipstack-${version}.tgz -C ${folder}`);
  const next = join(folder, "package");
  await user(`npm pkg set version=${nextVersion}`, next);
  await writeFile(
    join(next, "contract/release.json"),
    JSON.stringify({ registry, digests: { "embed-cpu": digest } }),
  );
  await user("npm publish", next);

  const clipstack = (line: string, reject = true) => user(`npx clipstack ${line}`, project, reject);
  await clipstack("synth");
  await cp(join(project, "cdktf.out"), join(folder, "before"), { recursive: true });
  await step("user", "npm update", async () => {
    await user("npm update", project);
    return match(await clipstack("--version"), new RegExp(nextVersion));
  });
  await step("user", "npx clipstack synth and review", async () => {
    await clipstack("synth");
    const folders = `--base ${folder}/before --head cdktf.out`;
    return match(await clipstack(`review ${folders}`, false), /^## .*/m);
  });
  await deployAgain(rehearsal, project);
}

/** `docker run` of the image, with a file of weights. */
async function runImage({ registry, model }: Rehearsal, digest: string): Promise<void> {
  const image = `${registry}/clipstack/embed@${digest}`;
  const [port] = await freePorts(1);
  await run(`docker pull ${image}`);
  const options = `--rm --detach --publish 127.0.0.1:${port}:8002 --env ALLOW_ANONYMOUS=true`;
  const file = `--volume ${model}:/models/${modelPath(defaultModel, "fp32")}:ro`;
  const url = `http://127.0.0.1:${port}`;
  await step("user", "docker run by digest, until an image is embedded", async () => {
    const id = await run(`docker run ${options} ${file} ${image}`);
    undone.push(() => run(`docker rm --force ${id}`));
    await answered(`${url}/readyz`);
    const body = await readFile(join(packageFolder, "model-tools/samples/dunes.jpg"));
    const headers = { "content-type": "image/jpeg" };
    const response = await fetch(`${url}/embed`, { method: "POST", headers, body });
    return `HTTP ${response.status}, ${match(await response.text(), /"embeddings?":\[+([-\d.e]+)/)}…`;
  });
}

/** Installs the chart from the registry on a kind cluster, whose node pulls the image by digest. */
async function installChart({ registry, model }: Rehearsal, digest: string): Promise<void> {
  const certificates = "/etc/containerd/certs.d";
  const patch = `[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "${certificates}"`;
  let cluster: Awaited<ReturnType<typeof createCluster>> | undefined;
  await step("user", "kind create cluster", async () => {
    cluster = await createCluster({ containerdConfigPatches: [patch] });
    undone.push(cluster.remove);
    return undefined;
  });
  const { node, kubeconfig, context } = cluster!;
  const network = await run("docker network inspect kind");
  const gateway = match(network, /"Gateway": "(\d+\.[\d.]+)"/);
  const [weightsPort = 0] = await freePorts(1);
  await forward(gateway, Number(registry.split(":")[1]));
  await serveFile(model, gateway, weightsPort);
  const mirror = `${certificates}/${registry}`;
  await run(`docker exec ${node} mkdir -p ${mirror}`);
  await run(`docker exec -i ${node} tee ${mirror}/hosts.toml`, {
    input: `[host."http://${gateway}:${registry.split(":")[1]}"]\n`,
  });
  const values = {
    embed: {
      image: { repository: `${registry}/clipstack/embed`, digest },
      auth: { allowAnonymous: true },
    },
    model: {
      weights: "init",
      sha256: createHash("sha256")
        .update(await readFile(model))
        .digest("hex"),
      init: { url: `http://${gateway}:${weightsPort}/model.onnx` },
    },
    networkPolicy: { egress: [{ ports: [{ protocol: "TCP", port: weightsPort }] }] },
  };
  const where = `--kubeconfig ${kubeconfig} --kube-context ${context}`;
  await step("user", "helm install oci://…/charts/clipstack, until ready", async () => {
    const chart = `oci://${registry}/charts/clipstack --version ${version} --plain-http`;
    const wait = `--wait --timeout 10m --values - ${where}`;
    const input = stringify(values);
    return match(await run(`helm install embeddings ${chart} ${wait}`, { input }), /STATUS: .*/);
  });
  await step("user", "helm test", async () =>
    match(await run(`helm test embeddings ${where}`), /Phase: +(Succeeded)/),
  );
}

async function rehearse(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-release-"));
  undone.push(() => rm(folder, { recursive: true, force: true }));
  const rehearsal = await prepare(folder);
  const { registry, npmPort } = rehearsal;
  const image = await run(".ci/test-images embed");
  await startImageRegistry(folder, Number(registry.split(":")[1]));
  await startNpmRegistry(process.env.CLIPSTACK_VERDACCIO!, folder, npmPort);
  const digest = await publish(rehearsal, image);
  await runImage(rehearsal, digest);
  await installChart(rehearsal, digest);
  const project = await createProject(rehearsal);
  await deploy(rehearsal, project, digest);
  await review(rehearsal, project);
  await upgrade(rehearsal, project, image);
}

await runMain(
  usage,
  { report: { type: "string", default: join("bench", "reports") } },
  async ({ report }) => {
    const missing = await missingParts(["CLIPSTACK_VERDACCIO"], ["terraform"]);
    if (missing.length > 0) {
      console.log(`release-rehearsal skipped: ${missing.join(", ")}`);
      return true;
    }
    const startedAt = new Date().toISOString();
    let problem: string | undefined;
    try {
      await rehearse();
    } catch (error) {
      problem = (error as Error).message;
      console.error(`release-rehearsal: ${problem}`);
    }
    for (const undo of undone.reverse()) {
      await undo().catch((error: Error) => console.error(`not removed: ${error.message}`));
    }
    stopServers();
    const record = { schema: 1, kind: "release-rehearsal", startedAt, version, steps };
    const load = { loadAverage: loadavg()[0] };
    await mkdir(report, { recursive: true });
    const file = join(report, `${reportName(startedAt, record.kind)}.json`);
    await writeFile(file, recordText({ ...record, ...load, ...(problem && { problem }) }));
    console.log(`record: ${file}`);
    return problem === undefined;
  },
);
