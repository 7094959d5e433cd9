import { UserError } from "../../contract/user-error.ts";
import { numberOption, runMain } from "../load/run-main.ts";
import { soak } from "./soak.ts";

/** Maximum ratio of the resident memory at the end to that after the warm-up. */
const maxGrowth = 1.1;

const usage = `npm run lab -- soak [--requests N] [--warm-up N] [--concurrency N] [--weights FILE]

Sends requests of mixed sizes and encodings to one embed server and checks that every status is 200, that the resident
memory at the end is at most 10 % above that after the warm-up, and that the server ends with code 0. Prints the latency of
/healthz under this load.

  --requests N     number of requests (default: 20000)
  --warm-up N      number of requests before the first memory measurement (default: 2000)
  --concurrency N  requests in flight (default: 32)
  --weights FILE   ONNX file (default: the tiny model)

Exit codes: 0 all checks passed, 1 a check failed, 2 wrong usage.`;

await runMain(
  usage,
  {
    requests: { type: "string", default: "20000" },
    "warm-up": { type: "string", default: "2000" },
    concurrency: { type: "string", default: "32" },
    weights: { type: "string" },
  },
  async (values) => {
    const [requests, warmUp, concurrency] = [
      numberOption("--requests", values.requests),
      numberOption("--warm-up", values["warm-up"]),
      numberOption("--concurrency", values.concurrency),
    ];
    if (requests <= warmUp) {
      throw new UserError(`--requests must exceed --warm-up (${warmUp}), got ${requests}`);
    }
    if (concurrency < 2)
      throw new UserError(`--concurrency must be at least 2, got ${concurrency}`);
    const { memory, health, failures, stopped, ...result } = await soak({
      requests,
      warmUp,
      concurrency,
      weights: values.weights,
      onProgress: (line) => console.log(line),
    });
    const growth = memory.late / memory.early;
    const failed = [failures, health.errorsWithWarmup].map(
      (codes) =>
        Object.entries(codes)
          .map(([code, count]) => `${code}: ${count}`)
          .join(", ") || "none",
    );
    const ms = (value = Number.NaN) => `${value.toFixed(1)} ms`;
    const { p50, p99, max } = health.latencyMs ?? {};
    console.log(`${result.requests} requests in ${Math.round(result.seconds)} s`);
    console.log(
      `resident memory at the end: ${(growth * 100 - 100).toFixed(1)} % above that after the warm-up`,
    );
    console.log(
      `/healthz with ${concurrency} requests in flight: p50 ${ms(p50)}, p99 ${ms(p99)}, max ${ms(max)}, ${health.samples} responses, failed ${failed[1]}`,
    );
    console.log(`responses other than 200: ${failed[0]}; stopped ${stopped}`);
    return growth <= maxGrowth && failed.every((it) => it === "none") && stopped === "with code 0";
  },
);
