import { parseArgs } from "node:util";
import { soak } from "./soak.ts";
import { wholeNumber, wrongUsage } from "./trial-arguments.ts";

/** What the resident size may be at the end, of what it was after the first requests. */
const maxGrowth = 1.1;

const usage = `npm run soak -- [--requests N] [--warm-up N] [--concurrency N] [--model FILE]

Send requests of mixed sizes and forms to one embed server: its resident size at the end is within 10 % of that after
the first 2000, every answer is 200, and it stops in order. Prints how /healthz answered meanwhile. Other settings of
the server come from the environment, as in its container.

  --requests N     how many (default: 20000)
  --warm-up N      after how many the memory is compared (default: 2000)
  --concurrency N  requests in flight (default: 32)
  --model FILE     ONNX file (default: the tiny model)

Exit codes: 0 nothing is wrong, 1 something is, 2 wrong usage.`;

const { values } = wrongUsage(usage, () =>
  parseArgs({
    options: {
      requests: { type: "string", default: "20000" },
      "warm-up": { type: "string", default: "2000" },
      concurrency: { type: "string", default: "32" },
      model: { type: "string" },
      help: { type: "boolean" },
    },
  }),
);
if (values.help) {
  console.log(usage);
} else {
  const numbers = wrongUsage(usage, () => {
    const warmUp = wholeNumber("warm-up", values["warm-up"], 1);
    return {
      warmUp,
      requests: wholeNumber("requests", values.requests, warmUp + 1),
      concurrency: wholeNumber("concurrency", values.concurrency, 1),
    };
  });
  const result = await soak({
    ...numbers,
    env: values.model === undefined ? {} : { MODEL_PATH: values.model },
    onProgress: (line) => console.log(line),
  });
  const { memory, health, failures } = result;
  const growth = memory.late / memory.early;
  const ms = (value: number) => `${value.toFixed(1)} ms`;
  const failed = Object.entries(failures).map(([what, count]) => `${what}: ${count}`);
  console.log(
    `${result.requests} requests, ${result.images} images in ${Math.round(result.seconds)} s`,
  );
  console.log(`resident size at the end: ${(growth * 100 - 100).toFixed(1)} % over the early one`);
  console.log(
    `/healthz with ${numbers.concurrency} requests in flight: p50 ${ms(health.p50)}, p99 ${ms(health.p99)}, longest ${ms(health.max)}, ${health.count} asked, ${health.failed} failed`,
  );
  console.log(`other answers than 200: ${failed.join(", ") || "none"}; stopped ${result.stopped}`);
  const good =
    growth <= maxGrowth &&
    failed.length === 0 &&
    health.failed === 0 &&
    result.stopped === "with code 0";
  process.exitCode = good ? 0 : 1;
}
