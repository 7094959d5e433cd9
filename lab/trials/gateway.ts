import { connect as openSocket, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { embedPaths } from "../../contract/embed-api.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { countCodes } from "../../target/load/samples.ts";
import { startLoad } from "../../target/load/start-load.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { FaultyUpstream, faults } from "./faulty-upstream.ts";
import { type ServerProcess, startEmbed, startTriton } from "./server-process.ts";
import { trialImages } from "./trial-images.ts";

export interface GatewayTrialOptions {
  readonly minutes: number;
  /** Arguments of Node that start the servers. */
  readonly program?: readonly string[] | undefined;
  readonly onProgress?: (line: string) => void;
}

export interface GatewayTrialResult {
  readonly answered: number;
  /** Responses other than 200, by code. */
  readonly failures: Readonly<Record<string, number>>;
  /** Resident memory of the gateway without load after each cycle, in 10⁶ bytes. */
  readonly memory: readonly number[];
  /** Times that a server was taken out of rotation because its calls failed. */
  readonly ejections: number;
  /** Requests in flight at the end that the stopping gateway answered, of {@link drainedRequests}. */
  readonly drained: number;
  /** Exit description of the gateway, such as `with code 0`. */
  readonly stopped: string;
}

export const drainedRequests = 8;
const imageClients = 6;
const textClients = 2;
/** Characters of a long text. */
const textLength = 30_000;
/** Duration of the faults in ms: one server is frozen and one returns errors. After half of it, a connection is frozen too. */
const faultMs = 16_000;
/**
 * Pause after the faults in which the gateway replaces the frozen connection. The third server is
 * restarted after it.
 */
const reconnectMs = 9_000;
/** Pause in ms, in which garbage collectors and allocators free memory. */
const restMs = 1_500;
const hostileRequests = 200;
/**
 * Address of the clients that do not read responses. It differs from that of the clients whose
 * requests must be answered.
 */
const hostileAddress = "127.0.0.2";

/**
 * Sends images and long texts to a gateway with three Triton servers. In each cycle one is frozen, one is faulty and the third is then
 * restarted, beside clients that send requests and do not read the responses; the roles rotate.
 */
export async function trialGateway(options: GatewayTrialOptions): Promise<GatewayTrialResult> {
  const { minutes, program, onProgress = () => {} } = options;
  const endsAt = performance.now() + minutes * 60_000;
  const tritons = await Promise.all([0, 1, 2].map(() => startTriton(program)));
  const upstreams = tritons.map(({ ports }) => new FaultyUpstream(ports[1]!));
  const targets = await Promise.all(upstreams.map((upstream) => upstream.start()));
  const env = {
    BACKEND: "triton",
    TRITON_GRPC_URLS: targets.join(),
    MODELS: defaultModel.name,
  } as const;
  const gateway = await startEmbed({ env }, program);
  const failures: Record<string, number> = {};
  const memory: number[] = [];
  let answered = 0;
  try {
    const prepared = loads(gateway);
    for (let cycle = 0; cycle === 0 || performance.now() < endsAt; cycle++) {
      const running = prepared.map(({ requests, concurrency }) =>
        startLoad(requests, { kind: "closed loop", concurrency }),
      );
      const hostile = sendUnread(gateway);
      const fault = faults[cycle % faults.length]!;
      const [frozen, faulty] = [upstreams[cycle % 3]!, upstreams[(cycle + 1) % 3]!];
      faulty.fault = fault;
      for (let half = 0; half < 2; half++) {
        frozen.freeze();
        await sleep(faultMs / 2);
      }
      faulty.fault = undefined;
      await sleep(reconnectMs);
      const restarted = (cycle + 2) % 3;
      await tritons[restarted]!.stop();
      tritons[restarted] = await startTriton(program);
      upstreams[restarted]!.target = tritons[restarted]!.ports[1]!;
      for (const socket of hostile) socket.destroy();
      await Promise.all(running.map((load) => load.stop()));
      for (const { samples } of running) {
        answered += samples.length;
        for (const [code, count] of Object.entries(countCodes(samples))) {
          failures[code] = (failures[code] ?? 0) + count;
        }
      }
      await sleep(restMs);
      memory.push(gateway.memory());
      onProgress(
        `${fault}: ${answered} requests, failed ${JSON.stringify(failures)}, ${Math.round(memory.at(-1)!)} MB`,
      );
    }
    const ejections = await ejectionsOf(gateway);
    return { answered, failures, memory, ejections, ...(await drain(gateway)) };
  } finally {
    for (const upstream of upstreams) upstream.stop();
    await Promise.all([gateway, ...tritons].map((server) => server.stop()));
  }
}

function urlOf({ ports }: ServerProcess): string {
  return `http://127.0.0.1:${ports[0]}`;
}

interface Load {
  readonly requests: PreparedRequests;
  readonly concurrency: number;
}

function loads(gateway: ServerProcess): readonly Load[] {
  const common = {
    transport: "http",
    url: urlOf(gateway),
    headers: {},
    imagesPerRequest: 1,
  } as const;
  const images = trialImages(100_000).map(({ bytes }) => ({
    headers: { "content-type": "image/jpeg" },
    body: bytes,
  }));
  const words = "a photo of a dog that looks at the sea, ".repeat(textLength / 40);
  const text = {
    headers: { "content-type": "application/json" },
    body: Buffer.from(JSON.stringify({ model: defaultModel.name, input: words })),
  };
  return [
    {
      requests: { ...common, path: embedPaths.embed, requests: images },
      concurrency: imageClients,
    },
    {
      requests: { ...common, path: embedPaths.openAiEmbeddings, requests: [text] },
      concurrency: textClients,
    },
  ];
}

/** Sends pipelined requests whose responses are not read. */
function sendUnread({ ports }: ServerProcess): readonly Socket[] {
  const [image] = trialImages();
  const document = Buffer.from(`GET ${embedPaths.openapi} HTTP/1.1\r\nhost: a\r\n\r\n`);
  const head = `POST ${embedPaths.embed} HTTP/1.1\r\nhost: a\r\ncontent-type: image/jpeg\r\ncontent-length: ${image!.bytes.length}\r\n\r\n`;
  const embed = Buffer.concat([Buffer.from(head), image!.bytes]);
  return [document, embed].map((request) => {
    const socket = openSocket({ port: ports[0]!, host: "127.0.0.1", localAddress: hostileAddress });
    socket.on("error", () => {});
    socket.pause();
    for (let sent = 0; sent < hostileRequests; sent++) socket.write(request);
    return socket;
  });
}

async function ejectionsOf(gateway: ServerProcess): Promise<number> {
  const metrics = await (await fetch(`${urlOf(gateway)}${embedPaths.metrics}`)).text();
  const lines = metrics.split("\n").filter((line) => line.startsWith(embedMetrics.tritonEjections));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

/** Stops the gateway while requests are in flight. */
async function drain(
  gateway: ServerProcess,
): Promise<Pick<GatewayTrialResult, "drained" | "stopped">> {
  const [image] = trialImages();
  const requests = Array.from({ length: drainedRequests }, async () => {
    const headers = { "content-type": "image/jpeg" };
    const body = new Uint8Array(image!.bytes);
    const { status } = await fetch(`${urlOf(gateway)}${embedPaths.embed}`, {
      method: "POST",
      headers,
      body,
    });
    return status === 200;
  });
  // the requests are accepted
  await Promise.race(requests);
  const stopped = await gateway.stop();
  const outcomes = await Promise.allSettled(requests);
  const drained = outcomes.filter((each) => each.status === "fulfilled" && each.value).length;
  return { drained, stopped };
}
