import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { endWithParent, startChild } from "../../artefact/child-process.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import { describeExit, lastLinesOf, waitUntilReady } from "../../artefact/simulation.ts";
import { linkedRepository } from "../../cli/model/served-models.ts";
import { embedPaths } from "../../contract/embed-routes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { ensureTinyModel } from "../../model-tools/generate/generate.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import { residentMB } from "../../target/readings/process-stat.ts";

const main = fileURLToPath(new URL("../../inference-image/main.ts", import.meta.url));

/** Arguments of Node that start the server from its sources. */
const sources = ["--import", import.meta.resolve("tsx"), main];

/** Limits for the start and the stop of a server. */
const startSeconds = 60;
const stopSeconds = 40;

/** Embed server or Triton emulator that a lab trial runs as a child process. */
export interface ServerProcess {
  readonly name: "embed" | "triton";
  /** Ports of 127.0.0.1: one for `embed`; HTTP, gRPC and metrics for `triton`. */
  readonly ports: readonly number[];
  /** Exit description with the last output lines; `undefined` while running. */
  readonly exitDescription: string | undefined;
  /** Resident memory in 10⁶ bytes; 0 on systems without `/proc`. */
  memory(): number;
  /** Sends SIGTERM; returns `with code 0` if the server exited cleanly. */
  stop(): Promise<string>;
}

export interface EmbedProcessOptions {
  /** ONNX file of the image tower of the default model. @default - the tiny model */
  readonly weights?: string | undefined;
  /** Other settings, as in the container. */
  readonly env?: Partial<Record<ServerEnvName, string>>;
}

/**
 * Starts the embed server.
 *
 * @param program - Arguments of Node that start it.
 */
export async function startEmbed(
  { weights, env }: EmbedProcessOptions = {},
  program: readonly string[] = sources,
): Promise<ServerProcess> {
  const ports = await freePorts(1);
  const files = { image: weights ?? (await ensureTinyModel(defaultModel)) };
  return start("embed", ports, embedPaths.readyz, program, {
    LOG_LEVEL: "error",
    MODEL_REPOSITORY: await linkedRepository([{ spec: defaultModel, files }]),
    ...env,
    HOST: "127.0.0.1",
    PORT: String(ports[0]),
  });
}

/**
 * Starts the Triton emulator with all models of this checkout on the tiny model's file.
 *
 * @param program - Arguments of Node that start it.
 */
export async function startTriton(program: readonly string[] = sources): Promise<ServerProcess> {
  const repository = await mkdtemp(join(tmpdir(), "clipstack-trial-"));
  const [image, text] = await Promise.all([
    ensureTinyModel(defaultModel),
    ensureTinyModel(defaultModel, "text"),
  ]);
  const files = { image, text };
  await writeModelRepository([{ spec: defaultModel, files }], repository);
  const ports = await freePorts(3);
  const services = ["http", "grpc", "metrics"].flatMap((service, i) => [
    `--${service}-address=127.0.0.1`,
    `--${service}-port=${ports[i]}`,
  ]);
  const args = [
    ...["tritonserver", `--model-repository=${repository}`],
    ...["--model-control-mode=explicit", "--load-model=*", ...services],
  ];
  return start("triton", ports, oipPaths.ready, [...program, ...args], {}, () =>
    rmSync(repository, { recursive: true, force: true }),
  );
}

async function start(
  name: ServerProcess["name"],
  ports: readonly number[],
  readyPath: string,
  program: readonly string[],
  env: Readonly<Record<string, string>>,
  onEnd = () => {},
): Promise<ServerProcess> {
  const command = [process.execPath, "--import", endWithParent, ...program];
  const child = startChild({ command, args: [], env });
  void child.exited.then(onEnd);
  const readyUrl = `http://127.0.0.1:${ports[0]}${readyPath}`;
  const ready = await waitUntilReady(child, readyUrl, startSeconds);
  if (!ready.ok) {
    await child.stop(stopSeconds);
    throw new Error(`the ${name} server ${ready.message}`);
  }
  return {
    name,
    ports,
    get exitDescription() {
      return child.exit && `${describeExit(child.exit)}${lastLinesOf(child)}`;
    },
    memory: () => residentMB(child.pid) ?? 0,
    stop: async () => describeExit(await child.stop(stopSeconds)),
  };
}
