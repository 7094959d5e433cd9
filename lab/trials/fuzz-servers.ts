import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import type { SampleImage } from "../../target/reference/reference.ts";
import { embedBy } from "../../target/requests/embed-requests.ts";
import { type HttpClient, openHttpClient } from "../../target/requests/http-client.ts";
import { rowsOf } from "../../target/requests/infer.ts";
import { relativeDifference } from "../../target/stats/statistics.ts";
import { repositoryModels } from "./fuzz-http-inputs.ts";
import type { FuzzInput } from "./fuzz-input.ts";
import { openFuzzSender } from "./fuzz-send.ts";
import { type ServerProcess, startEmbed, startTriton } from "./server-process.ts";

const timeoutMs = 30_000;
/** Maximum relative difference between two embeddings of the reference image. */
const tolerance = 1e-5;

/** Servers of both roles. */
export interface Servers {
  /** Number of responses by target and status. */
  readonly responses: Readonly<Record<string, number>>;
  readonly all: readonly ServerProcess[];
  /** Returns the error in the response, in one line. */
  send(input: FuzzInput): Promise<string | undefined>;
  /** Returns one line for each server that ended or returns another embedding than at its start. */
  check(): Promise<readonly string[]>;
  /** Resident memory of each server in 10⁶ bytes. */
  memory(): readonly number[];
  /** Returns the errors during the stop. */
  stop(): Promise<readonly string[]>;
}

/** Starts the servers, which stop when `work` ends. */
export async function withServers<T>(
  images: readonly SampleImage[],
  work: (servers: Servers) => Promise<T>,
): Promise<T> {
  const env = {
    INTRA_OP_THREADS: "1",
    MAX_BODY_BYTES: String(4 * 1024 * 1024),
    MAX_IMAGE_PIXELS: "4000000",
  };
  const embed = await startEmbed({ env });
  const all = [embed];
  try {
    const triton = await startTriton();
    all.push(triton);
    const { servers, close } = await openServers(embed, triton, images);
    try {
      return await work(servers);
    } finally {
      await close();
    }
  } finally {
    await Promise.all(
      all.map((server) => (server.exitDescription === undefined ? server.stop() : "")),
    );
  }
}

async function openServers(
  embed: ServerProcess,
  triton: ServerProcess,
  images: readonly SampleImage[],
): Promise<{ readonly servers: Servers; close(): Promise<void> }> {
  const all = [embed, triton];
  const [embedPort = 0] = embed.ports;
  const [httpPort = 0, grpcPort = 0, metricsPort = 0] = triton.ports;
  const url = (port: number) => `http://127.0.0.1:${port}`;
  const http = openHttpClient();
  const responses: Record<string, number> = {};
  const ports = {
    embed: embedPort,
    "triton-http": httpPort,
    "triton-grpc": grpcPort,
    "triton-metrics": metricsPort,
  };
  const sender = openFuzzSender(ports, (response) => {
    responses[response] = (responses[response] ?? 0) + 1;
  });
  const image = images.find(({ contentType }) => contentType === "image/jpeg")!;
  const embedImage = () => embedReference(http, url(embedPort), image);
  const inferImage = () => inferReference(http, url(httpPort), image);
  const [embedded, inferred] = [await embedImage(), await inferImage()];
  const servers: Servers = {
    all,
    responses,
    send: sender.send,
    async check() {
      const exitedServers = all.filter((server) => server.exitDescription !== undefined);
      if (exitedServers.length > 0)
        return exitedServers.map((it) => `the ${it.name} server ended ${it.exitDescription}`);
      const problems = await Promise.all([
        changeOf("embed", embedImage(), embedded),
        changeOf("triton", inferImage(), inferred),
        statusProblem(http, `${url(embedPort)}${embedPaths.healthz}`),
        statusProblem(http, `${url(metricsPort)}${embedPaths.metrics}`),
      ]);
      return problems.filter((problem) => problem !== undefined);
    },
    memory: () => all.map((server) => server.memory()),
    async stop() {
      const exits = await Promise.all(all.map((server) => server.stop()));
      return exits.flatMap((exit, index) =>
        exit === "with code 0" ? [] : [`the ${all[index]?.name} server stopped ${exit}`],
      );
    },
  };
  const close = async () => {
    sender.close();
    await http.close();
  };
  return { servers, close };
}

async function embedReference(
  http: HttpClient,
  url: string,
  image: SampleImage,
): Promise<Float32Array> {
  const [vector] = await embedBy(http, url, "raw", [image], defaultModel);
  return vector!;
}

async function inferReference(
  http: HttpClient,
  url: string,
  { bytes }: SampleImage,
): Promise<Float32Array> {
  // an earlier input may have unloaded a model or changed its configuration
  for (const name of repositoryModels) {
    const path = `${url}/v2/repository/models/${name}/load`;
    const { status, body } = await http.send(path, { method: "POST" });
    if (status !== 200) throw new Error(`load: status ${status}: ${body}`);
  }
  const { name, inputs } = tritonModel(defaultModel, "jpeg");
  const transport = openHttpTransport({ url });
  try {
    const input = {
      name: inputs[0].name,
      dataType: "BYTES",
      shape: [1, 1],
      data: [bytes],
    } as const;
    const outputs = await transport.infer(name, [input], { timeoutMs });
    const [vector] = rowsOf({ spec: defaultModel, modality: "image" }, outputs, 1);
    return vector!;
  } finally {
    await transport.close();
  }
}

async function changeOf(
  name: string,
  got: Promise<Float32Array>,
  expected: Float32Array,
): Promise<string | undefined> {
  try {
    const difference = relativeDifference(await got, expected);
    if (difference < tolerance) return undefined;
    return `${name}: the embedding of the reference image has changed by ${difference}`;
  } catch (error) {
    return `${name}: embedding the reference image failed: ${(error as Error).message}`;
  }
}

async function statusProblem(http: HttpClient, url: string): Promise<string | undefined> {
  try {
    const { status } = await http.send(url, { timeoutMs });
    return status === 200 ? undefined : `${url}: status ${status}`;
  } catch (error) {
    return `${url}: ${(error as Error).message}`;
  }
}
