/** `npm run bench:agree` and `npm run bench:generator`: our generator beside perf_analyzer and hey. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { request } from "undici";
import { embedPaths } from "../../inference-image/src/contract/embed-paths.ts";
import {
  imageElements,
  openclipVitB32,
} from "../../inference-image/src/contract/model-signature.ts";
import { oipPaths } from "../../inference-image/src/contract/oip-paths.ts";
import { BenchError } from "../src/bench-error.ts";
import { type Child, endWithParent, startChild } from "../src/child-process.ts";
import { freePorts } from "../src/free-ports.ts";
import { type AgreeTargets, agreeTable, compareWithPeers, disagreement, ratioOf } from "./agree.ts";
import { startNullHttpServer } from "./null-server.ts";
import { heyVariable, pinned } from "./peers.ts";
import { numberOption, runMain } from "./run-main.ts";

const tritonVariable = "CLIPSTACK_REAL_TRITON";

const help = `Usage: npm run bench:agree -- [options]

Whether our load generator sees what others see: the same server and the same load, beside NVIDIA's perf_analyzer
(Triton's paths) and hey (the embed API), in alternating rounds. Without addresses servers are started.

Options:
  --http <url>             Triton's HTTP address: http://host:port
  --grpc <host:port>       Triton's gRPC address
  --embed <url>            embed API
  --server <kind>          what is started: bundled (the default), which computes, on the cores that the generators are on;
                           sleeping: a real tritonserver and a server without a model that wait 30 ms for each
                           request, so that no generator takes anything from the server;
                           or null: a server that responds at once, so that the generator is the limit; each is held to
                           one core, and hey alone is compared with (npm run bench:generator)
  --model <name>           of the bundled server: tiny, generated, an ONNX file (default: generated)
  --perf-analyzer <path>   default: bin/perf_analyzer below $${tritonVariable}, which .ci/real-triton prints
  --hey <path>             default: $${heyVariable}, which .ci/hey prints
  --rounds <n>             the order is reversed in each (default: 3)
  --seconds <n>            length of each measurement (default: 6)
  --concurrency <n>        clients (default: 2)
  --within <percent>       largest difference of a median (default: 5)
  --help

Exit code 1 where throughput, p50 or p95 differ by more; with --server null, where ours sends less than half of the requests
per second that hey sends.

Example:
  $ ${heyVariable}=$(.ci/hey) ${tritonVariable}=$(.ci/real-triton) npm run bench:agree
`;

const sample = new URL("../samples/mountains.jpg", import.meta.url);
const clipstack = fileURLToPath(new URL("../../stacks/cli/main.ts", import.meta.url));
const longestStartMs = 120_000;
const sleepMs = 30;
const kinds = ["bundled", "sleeping", "null"] as const;
/** Least part of hey's rate that our generator must reach on a server that responds at once. */
const leastRate = 0.5;

await runMain(async (signal) => {
  const { values } = parseArgs({
    options: {
      http: { type: "string" },
      grpc: { type: "string" },
      embed: { type: "string" },
      server: { type: "string", default: "bundled" },
      model: { type: "string", default: "generated" },
      "perf-analyzer": { type: "string", default: perfAnalyzer() },
      hey: { type: "string", default: process.env[heyVariable] },
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "6" },
      concurrency: { type: "string", default: "2" },
      within: { type: "string", default: "5" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    console.log(help);
    return true;
  }
  const { hey, "perf-analyzer": analyzer } = values;
  if (hey === undefined && analyzer === undefined) {
    throw new BenchError("nothing to compare with: give --perf-analyzer or --hey");
  }
  const options = {
    hey,
    perfAnalyzer: analyzer,
    image: {
      bytes: readFileSync(sample),
      contentType: "image/jpeg",
      tensor: Float32Array.from({ length: imageElements }, (_, i) => Math.sin(i)),
    },
    rounds: numberOption("--rounds", values.rounds),
    seconds: numberOption("--seconds", values.seconds),
    concurrency: numberOption("--concurrency", values.concurrency),
    signal,
    say: (line: string) => console.error(line),
  };
  const { http, grpc, embed } = values;
  const server = kinds.find((kind) => kind === values.server);
  if (server === undefined) {
    throw new BenchError(`--server must be one of ${kinds.join(", ")}, got '${values.server}'`);
  }
  if (server === "null") {
    if (hey === undefined) throw new BenchError(`--hey or ${heyVariable} must name hey`);
    const cores = (await canPin()) ? "0" : undefined;
    const rows = await withNullServer(0, ({ embed: targets }) =>
      compareWithPeers({ ...targets, model: openclipVitB32.name }, { ...options, cores }),
    );
    console.log(agreeTable(rows));
    return rows.every((row) => ratioOf(row, "requestsPerSecond") >= leastRate);
  }
  const given = http !== undefined || grpc !== undefined || embed !== undefined;
  const compare = (targets: AgreeTargets) => compareWithPeers(targets, options);
  const { name: model } = openclipVitB32;
  const both = async ({ triton, embed: embedServer }: Started) => [
    ...(analyzer === undefined ? [] : await compare({ ...triton, model })),
    ...(hey === undefined ? [] : await compare({ ...embedServer, model })),
  ];
  const rows = given
    ? await compare({ http, grpc, embed, model })
    : server === "bundled"
      ? await withBundledServers(values.model, signal, both)
      : await withSleepingServers(both);
  console.log(agreeTable(rows));
  return disagreement(rows) <= numberOption("--within", values.within) / 100;
});

function perfAnalyzer(): string | undefined {
  const home = process.env[tritonVariable];
  return home === undefined ? undefined : join(home, "bin", "perf_analyzer");
}

/** Where the servers listen that were started. */
interface Started {
  readonly triton: Pick<AgreeTargets, "http" | "grpc">;
  readonly embed: Pick<AgreeTargets, "embed">;
}

async function withSleepingServers<T>(work: (started: Started) => Promise<T>): Promise<T> {
  // looks for a tritonserver when it is loaded
  const { startSleepingTriton } = await import("./test-sleeping-triton.ts");
  const triton = await startSleepingTriton(sleepMs);
  try {
    return await withNullServer(sleepMs, ({ embed }) =>
      work({ triton: { http: triton.url, grpc: triton.grpcTarget }, embed }),
    );
  } finally {
    await triton.stop();
  }
}

async function withNullServer<T>(
  delayMs: number,
  work: (started: Pick<Started, "embed">) => Promise<T>,
): Promise<T> {
  const server = await startNullHttpServer({ delayMs });
  try {
    return await work({ embed: { embed: server.url } });
  } finally {
    await server.close();
  }
}

/** Returns whether a generator can be held to one core while the server has another. */
async function canPin(): Promise<boolean> {
  if (process.platform !== "linux" || availableParallelism() < 2) return false;
  const command = [...pinned("0"), process.execPath, "--version"];
  return (await startChild({ command, args: [], env: {} }).exited).code === 0;
}

/** `clipstack serve`, once for each role. */
async function withBundledServers<T>(
  model: string,
  signal: AbortSignal,
  work: (started: Started) => Promise<T>,
): Promise<T> {
  const [http, grpc, metrics, embed] = await freePorts(4);
  const urls = { http: `http://127.0.0.1:${http}`, embed: `http://127.0.0.1:${embed}` };
  const servers = [
    serve([
      "--role",
      "triton",
      "--model-config-name",
      "cpu",
      "--model",
      model,
      "--http-port",
      `${http}`,
      "--grpc-port",
      `${grpc}`,
      "--metrics-port",
      `${metrics}`,
    ]),
    serve(["--role", "embed", "--model", model, "--http-port", `${embed}`]),
  ] as const;
  try {
    await ready(servers[0], `${urls.http}${oipPaths.ready}`, signal);
    await ready(servers[1], `${urls.embed}${embedPaths.readyz}`, signal);
    return await work({
      triton: { http: urls.http, grpc: `127.0.0.1:${grpc}` },
      embed: { embed: urls.embed },
    });
  } finally {
    await Promise.all(servers.map((server) => server.stop(10)));
  }
}

function serve(args: readonly string[]): Child {
  return startChild({
    command: [
      process.execPath,
      "--import",
      import.meta.resolve("tsx"),
      "--import",
      endWithParent,
      clipstack,
    ],
    args: ["serve", ...args],
    env: {},
  });
}

async function ready(server: Child, url: string, signal: AbortSignal): Promise<void> {
  const startedAt = performance.now();
  for (;;) {
    signal.throwIfAborted();
    if (server.exit !== undefined || performance.now() - startedAt > longestStartMs) {
      throw new BenchError(`the server did not start:\n${server.lastLines(4).join("\n")}`);
    }
    const status = await request(url).then(
      async ({ statusCode, body }) => {
        await body.dump();
        return statusCode;
      },
      () => 0,
    );
    if (status === 200) return;
    await sleep(100);
  }
}
