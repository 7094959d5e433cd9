import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { execa, type Options } from "execa";
import { freePorts } from "../../artefact/free-ports.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelPath } from "../../contract/repository-files.ts";
import { packageFolder, packageVersion } from "../../model-tools/files/folders.ts";
import { ensureTinyModel } from "../../model-tools/generate/generate.ts";

const help = `usage: npm run lab -- release-rehearsal [--weights tiny|generated]

Publishes the packages, the embed image and the chart to registries on 127.0.0.1, and then takes the path of a user who has only these
registries: npm create, clipstack verify, docker run, helm pull. Prints the time of every step; leaves nothing behind.

  CLIPSTACK_VERDACCIO     npm registry, required: $(.ci/registries npm)
  CLIPSTACK_OCI_REGISTRY  OCI registry: $(.ci/registries oci); without it: no image, no chart
  CLIPSTACK_EMBED_IMAGE   embed image in the Docker engine ($(.ci/test-images embed)); without it: no image
  CLIPSTACK_HELM          folder with bin/helm ($(.ci/helm)); without it: no chart

Exit codes: 0 success, 1 a step failed, 2 wrong usage.`;

const { values } = parseArgs({
  options: {
    weights: { type: "string", default: "tiny" },
    help: { type: "boolean", short: "h", default: false },
  },
});
const { CLIPSTACK_VERDACCIO, CLIPSTACK_OCI_REGISTRY, CLIPSTACK_EMBED_IMAGE, CLIPSTACK_HELM } =
  process.env;
const version = packageVersion();
const folder = await mkdtemp(join(tmpdir(), "clipstack-release-"));
const [npmPort, ociPort, embedPort] = await freePorts(3);
const registry = `127.0.0.1:${ociPort}`;
const servers: { kill: () => boolean }[] = [];

/** Runs a step and prints its time. */
async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  const start = performance.now();
  const result = await work();
  console.log(`${name.padEnd(60)} ${((performance.now() - start) / 1_000).toFixed(1)} s`);
  return result;
}

function skip(name: string, reason: string): void {
  console.log(`${name.padEnd(60)} skipped: ${reason}`);
}

async function run(command: readonly string[], options: Options = {}): Promise<string> {
  const [program = "", ...args] = command;
  const { stdout } = await execa(program, args, { stdin: "ignore", ...options });
  return String(stdout);
}

function serve(command: readonly string[], options: Options = {}): void {
  const [program = "", ...args] = command;
  const server = execa(program, args, { stdio: "ignore", reject: false, ...options });
  servers.push(server);
}

async function answered(url: string): Promise<Response> {
  const end = performance.now() + 120_000;
  for (;;) {
    const response = await fetch(url).catch(() => undefined);
    if (response?.ok) return response;
    if (performance.now() > end) throw new Error(`no answer from ${url}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** Environment of npm with the registry of this machine, and without the user's settings and cache. */
const npmEnv = {
  npm_config_registry: `http://127.0.0.1:${npmPort}/`,
  npm_config_userconfig: join(folder, "npmrc"),
  npm_config_cache: join(folder, "npm-cache"),
  CHECKPOINT_DISABLE: "1",
};

async function startNpmRegistry(verdaccio: string): Promise<void> {
  const upstream = await run(["npm", "config", "get", "registry"]);
  const config = {
    storage: join(folder, "npm-registry"),
    uplinks: { npmjs: { url: upstream.trim(), maxage: "1d" } },
    packages: {
      "{clipstack,create-clipstack,@clipstack/*}": { access: "$all", publish: "$all" },
      "**": { access: "$all", proxy: "npmjs" },
    },
    log: { type: "stdout", level: "error" },
  };
  await writeFile(join(folder, "verdaccio.yaml"), JSON.stringify(config));
  await writeFile(join(folder, "npmrc"), `//127.0.0.1:${npmPort}/:_authToken=rehearsal\n`);
  const listen = ["--listen", `127.0.0.1:${npmPort}`];
  serve([process.execPath, verdaccio, "--config", join(folder, "verdaccio.yaml"), ...listen]);
  await answered(`http://127.0.0.1:${npmPort}/-/ping`);
}

async function startImageRegistry(program: string): Promise<void> {
  const config = {
    version: 0.1,
    storage: { filesystem: { rootdirectory: join(folder, "oci") } },
    http: { addr: registry },
  };
  await writeFile(join(folder, "registry.yaml"), JSON.stringify(config));
  serve([program, "serve", join(folder, "registry.yaml")]);
  await answered(`http://${registry}/v2/`);
}

/** Pushes the embed image, and returns its digest. */
async function pushImage(image: string): Promise<string> {
  const name = `${registry}/clipstack/embed:${version}-cpu`;
  await run(["docker", "tag", image, name]);
  const pushed = await run(["docker", "push", name]);
  await run(["docker", "rmi", name]);
  return /digest: (sha256:[0-9a-f]{64})/.exec(pushed)![1]!;
}

async function publish(digest: string | undefined): Promise<void> {
  const packed = join(folder, "packed");
  const images = digest === undefined ? [] : ["--image", `embed-cpu=${digest}`];
  const pack = ["tools/release.mjs", "pack", packed, "--registry", registry, ...images];
  await step("pack the npm packages", () =>
    run([process.execPath, ...pack], { cwd: packageFolder }),
  );
  await step("publish them", async () => {
    for (const file of await readdir(packed)) {
      await run(["npm", "publish", join(packed, file)], { cwd: folder, env: npmEnv });
    }
  });
}

async function useChart(helm: string): Promise<void> {
  const program = join(helm, "bin", "helm");
  const charts = join(folder, "charts");
  await mkdir(charts);
  const packed = ["package", join(packageFolder, "helm/clipstack"), "--destination", charts];
  await step("publish the chart", async () => {
    await run([program, ...packed]);
    const file = join(charts, `clipstack-${version}.tgz`);
    await run([program, "push", file, `oci://${registry}/charts`, "--plain-http"]);
  });
  const chart = [`oci://${registry}/charts/clipstack`, "--version", version, "--plain-http"];
  await step("user: helm template oci://…/charts/clipstack", async () => {
    const objects = await run([program, "template", "embeddings", ...chart]);
    if (!objects.includes("kind: Deployment")) throw new Error("the chart renders no Deployment");
  });
}

async function runImage(digest: string): Promise<void> {
  const image = `${registry}/clipstack/embed@${digest}`;
  const model = await ensureTinyModel(defaultModel);
  const options = ["--rm", "--detach", "--publish", `127.0.0.1:${embedPort}:8002`];
  const settings = ["--env", "ALLOW_ANONYMOUS=true"];
  const file = ["--volume", `${model}:/models/${modelPath(defaultModel, "fp32")}:ro`];
  const id = await step("user: docker run, until it is ready", async () => {
    const started = await run(["docker", "run", ...options, ...settings, ...file, image]);
    await answered(`http://127.0.0.1:${embedPort}/readyz`).catch(async (error) => {
      throw new Error(`${error.message}: ${await run(["docker", "logs", started])}`);
    });
    return started;
  });
  await run(["docker", "rm", "--force", id]);
  await run(["docker", "rmi", image]);
}

async function createProject(digest: string | undefined): Promise<void> {
  const user = { cwd: folder, env: npmEnv };
  const create = ["npm", "create", "--yes", `clipstack@${version}`, "my-inference"];
  await step("user: npm create clipstack my-inference (with npm install)", () =>
    run([...create, "--", "--stack", "single-gpu"], user),
  );
  const cwd = join(folder, "my-inference");
  const verify = ["npx", "clipstack", "verify", "single-gpu", "--weights", values.weights];
  const output = await step(`user: npx clipstack verify single-gpu, ${values.weights} model`, () =>
    run(verify, { ...user, cwd }),
  );
  console.log(`  ${/^\d+ checks passed.*$/m.exec(output)?.[0]}`);
  const stack = join(cwd, "cdktf.out/stacks/single-gpu/cdk.tf.json");
  const expected =
    digest === undefined ? "Dockerfile.gpu" : `${registry}/clipstack/embed@${digest}`;
  if (digest !== undefined) {
    const file = join(cwd, "environments/single-gpu.yaml");
    await writeFile(
      file,
      (await readFile(file, "utf8")).replace("accelerator: gpu", "accelerator: cpu"),
    );
    await step("user: npx cdktf synth", () => run(["npx", "cdktf", "synth"], { ...user, cwd }));
  }
  if (!(await readFile(stack, "utf8")).includes(expected)) {
    throw new Error(`the environment does not use ${expected}`);
  }
}

async function rehearse(verdaccio: string): Promise<void> {
  let digest: string | undefined;
  if (CLIPSTACK_OCI_REGISTRY === undefined) {
    skip("image and chart", "CLIPSTACK_OCI_REGISTRY is not set");
  } else {
    await step("start an OCI registry", () => startImageRegistry(CLIPSTACK_OCI_REGISTRY));
    if (CLIPSTACK_EMBED_IMAGE === undefined) skip("image", "CLIPSTACK_EMBED_IMAGE is not set");
    else digest = await step("push the embed image", () => pushImage(CLIPSTACK_EMBED_IMAGE));
  }
  await step("start an npm registry", () => startNpmRegistry(verdaccio));
  await publish(digest);
  await createProject(digest);
  if (digest !== undefined) await runImage(digest);
  if (CLIPSTACK_OCI_REGISTRY === undefined) return;
  if (CLIPSTACK_HELM === undefined) skip("chart", "CLIPSTACK_HELM is not set");
  else await useChart(CLIPSTACK_HELM);
}

if (values.help || CLIPSTACK_VERDACCIO === undefined) {
  console[values.help ? "log" : "error"](help);
  process.exitCode = values.help ? 0 : 2;
} else {
  try {
    await rehearse(CLIPSTACK_VERDACCIO);
  } catch (error) {
    console.error(`release-rehearsal: ${(error as Error).message}`);
    process.exitCode = 1;
  } finally {
    for (const server of servers) server.kill();
  }
}
await rm(folder, { recursive: true, force: true });
