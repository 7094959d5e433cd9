import { parseArgs } from "node:util";
import { numberOption, runMain } from "../../bench/load/run-main.ts";
import { UserError } from "../../contract/user-error.ts";
import { soak } from "./soak.ts";

/** Largest resident memory at the end, as a multiple of that after the first requests. */
const maxGrowth = 1.1;

const usage = `npm run soak -- [--requests N] [--warm-up N] [--concurrency N] [--model FILE]

Send requests of mixed sizes and forms to one embed server: its resident size at the end is within 10 % of that after
the first 2000, every answer is 200, and it stops in order. Prints how /healthz answered meanwhile.

  --requests N     how many (default: 20000)
  --warm-up N      after how many the memory is compared (default: 2000)
  --concurrency N  requests in flight (default: 32)
  --model FILE     ONNX file (default: the tiny model)

Exit codes: 0 nothing is wrong, 1 something is, 2 wrong usage.`;

await runMain(async () => {
  const { values } = parseArgs({
    options: {
      requests: { type: "string", default: "20000" },
      "warm-up": { type: "string", default: "2000" },
      concurrency: { type: "string", default: "32" },
      model: { type: "string" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    console.log(usage);
    return true;
  }
  const [requests, warmUp, concurrency] = [
    numberOption("--requests", values.requests),
    numberOption("--warm-up", values["warm-up"]),
    numberOption("--concurrency", values.concurrency),
  ];
  if (requests <= warmUp) {
    throw new UserError(`--requests must exceed --warm-up (${warmUp}), got ${requests}`);
  }
  if (concurrency < 2) throw new UserError(`--concurrency must be at least 2, got ${concurrency}`);
  const { memory, health, failures, stopped, ...result } = await soak({
    requests,
    warmUp,
    concurrency,
    env: values.model === undefined ? {} : { MODEL_PATH: values.model },
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
  console.log(`resident size at the end: ${(growth * 100 - 100).toFixed(1)} % over the early one`);
  console.log(
    `/healthz with ${concurrency} requests in flight: p50 ${ms(p50)}, p99 ${ms(p99)}, longest ${ms(max)}, ${health.samples} answered, failed ${failed[1]}`,
  );
  console.log(`other answers than 200: ${failed[0]}; stopped ${stopped}`);
  return growth <= maxGrowth && failed.every((it) => it === "none") && stopped === "with code 0";
});
