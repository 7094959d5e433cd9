import { randomBytes } from "node:crypto";
import { chmod, cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { servedTowers, towerFolder } from "../../constructs/models/served-towers.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { modelsArgument } from "../../contract/server/model-list.ts";
import { ensureTinyModel } from "../../model-tools/generate/generate.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import { command, type Docker, type Outcome } from "./test-docker.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Base image of the built images. */
export const nodeImage = process.env.CLIPSTACK_NODE_IMAGE ?? "node:24.21.0-bookworm-slim";

/** Options of every container, whose health is checked more often than that of a deployed one. */
const hardened = [
  "--health-interval=1s",
  "--user=1000:1000",
  "--read-only",
  "--tmpfs=/tmp",
  "--cap-drop=ALL",
  "--security-opt=no-new-privileges",
];

export interface TestContainer {
  readonly name: string;
  /** Published address of a container port: `127.0.0.1:<port>`. */
  address(port: number): Promise<string>;
  /** Runs a program in the container. */
  exec(...args: readonly string[]): Promise<Outcome>;
  /** Resolves when the container is healthy. @throws with its log if it exits or does not become healthy */
  healthy(): Promise<void>;
  /** `docker stop`. @returns exit code; 137 if the process was killed */
  stop(graceSeconds: number): Promise<number>;
  log(): Promise<string>;
  remove(): Promise<void>;
}

/** Limit of a build, which downloads packages. It only prevents hangs. */
export const buildTimeoutMs = 900_000;

interface Build {
  readonly context: string;
  readonly file: string;
  /** Build arguments. */
  readonly args: Readonly<Record<string, string>>;
}

/** Builds an image with a unique name. */
export async function buildImage(
  docker: Docker,
  { context, file, args }: Build,
): Promise<{ readonly image: string; readonly outcome: Outcome }> {
  const image = `clipstack-test/${randomBytes(4).toString("hex")}`;
  const words = [
    ...["--host", docker.endpoint, "build", "--tag", image, "--file", file],
    ...Object.entries(args).flatMap(([name, value]) => ["--build-arg", `${name}=${value}`]),
    context,
  ];
  return { image, outcome: await command("docker", words, { timeoutMs: buildTimeoutMs }) };
}

/** Builds the server image. @throws with the output of the build */
export async function serverImage(docker: Docker): Promise<string> {
  const { image, outcome } = await buildImage(docker, {
    context: root,
    file: join(root, "inference-image/Dockerfile"),
    args: { NODE_IMAGE: nodeImage },
  });
  if (outcome.code !== 0) throw new Error(outcome.output);
  return image;
}

/**
 * Builds the server image with tiny models, as for a cluster. Its name has a tag, so that the kubelet does not pull another one.
 *
 * @param models - Models in the image. Defaults to the image tower of the default model.
 * @throws with the output of the build
 */
export async function imageWithWeights(
  docker: Docker,
  models: readonly ModelSpec[] = defaultModels,
): Promise<string> {
  const server = await serverImage(docker);
  const context = await weightsContext(models);
  try {
    const { image, outcome } = await buildImage(docker, {
      context,
      file: join(root, "model_repository/image/Dockerfile.weights"),
      args: { IMAGE: server, MODELS: modelsArgument(models) },
    });
    if (outcome.code !== 0) throw new Error(outcome.output);
    await docker.run("tag", image, `${image}:tiny`);
    await docker.run("rmi", "--no-prune", `${image}:latest`);
    return `${image}:tiny`;
  } finally {
    await docker.run("rmi", "--no-prune", server);
    await rm(context, { recursive: true, force: true });
  }
}

/**
 * Copies the context of the images with weights, with towers of a few kilobytes.
 *
 * @param models - Models in addition to the image tower of the default model.
 */
export async function weightsContext(models: readonly ModelSpec[] = []): Promise<string> {
  const context = await mkdtemp(join(tmpdir(), "clipstack-images-"));
  // mounted into containers that run as another user
  await chmod(context, 0o755);
  await cp(join(root, "model_repository"), context, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => !/model\.[\w.-]*onnx(\.json)?$/.test(path) || path.includes("_trt/"),
  });
  await writeModelRepository(
    models.map((spec) => ({ spec })),
    context,
  );
  for (const tower of servedTowers([...defaultModels, ...models])) {
    const tiny = await ensureTinyModel(tower.spec, tower.modality);
    await cp(tiny, join(context, towerFolder(tower, "fp32"), "1", "model.onnx"));
  }
  return context;
}

/** Starts a container like the stacks do: without privileges, and with only `/tmp` writable. */
export async function startContainer(
  docker: Docker,
  {
    image,
    options = [],
    ports = [],
    command: words = [],
  }: {
    readonly image: string;
    /** Options of `docker run`. */
    readonly options?: readonly string[];
    /** Published on the loopback interface, at free ports. */
    readonly ports?: readonly number[];
    readonly command?: readonly string[];
  },
): Promise<TestContainer> {
  const published = ports.map((port) => `--publish=127.0.0.1::${port}`);
  const name = await docker.run(
    "run",
    "--detach",
    ...hardened,
    ...published,
    ...options,
    image,
    ...words,
  );
  const log = async () =>
    (await command("docker", ["--host", docker.endpoint, "logs", name])).output;
  const state = async () =>
    (
      await docker.run("inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", name)
    ).split(" ");
  return {
    name,
    address: async (port) => docker.run("port", name, String(port)),
    exec: (...args) => command("docker", ["--host", docker.endpoint, "exec", name, ...args]),
    async healthy() {
      for (const until = Date.now() + 240_000; Date.now() < until; await sleep(200)) {
        const [status, health] = await state();
        if (health === "healthy") return;
        if (status !== "running") throw new Error(`${image} exited:\n${await log()}`);
      }
      throw new Error(`${image} does not become healthy:\n${await log()}`);
    },
    async stop(graceSeconds) {
      await docker.run("stop", "--time", String(graceSeconds), name);
      return Number(await docker.run("inspect", "--format", "{{.State.ExitCode}}", name));
    },
    log,
    remove: async () => {
      await docker.run("rm", "--force", "--volumes", name);
    },
  };
}

/**
 * Builds an image that tests need: tritonserver from PyPI's wheel for x86-64, Debian's Prometheus or Caddy, or the embed server. It is kept
 * on the engine, because the build takes minutes.
 *
 * @throws with the output of the build if its packages are unavailable
 */
export async function keptImage(
  docker: Docker,
  name: "triton" | "prometheus" | "caddy" | "embed",
): Promise<string> {
  const env = { ...process.env, DOCKER_HOST: docker.endpoint };
  const { code, stdout, output } = await command(join(root, ".ci/test-images"), [name], {
    env,
    timeoutMs: buildTimeoutMs,
  });
  if (code !== 0) throw new Error(output);
  return stdout.trim();
}
