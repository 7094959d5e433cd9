import { parseArgs } from "node:util";
import { fuzz, mebibytes, replay } from "./fuzz.ts";
import { wholeNumber, wrongUsage } from "./trial-arguments.ts";

const usage = `npm run fuzz -- [--inputs N] [--seed N] [--concurrency N] [--replay FILE]

Send inputs to all endpoints of the embed server and of the one that stands where a Triton would, and see that they go
on as before: no crash, no hang, no 5xx but 503, the same embedding after it, no growing memory.

  --inputs N       how many (default: 50000)
  --seed N         the same seed gives the same inputs (default: another one each time)
  --concurrency N  inputs that are on their way at a time (default: 8)
  --replay FILE    send what an earlier run has saved, and nothing else

Exit codes: 0 nothing is wrong, 1 something is, 2 wrong usage.`;

const { values } = wrongUsage(usage, () =>
  parseArgs({
    options: {
      inputs: { type: "string", default: "50000" },
      seed: { type: "string" },
      concurrency: { type: "string", default: "8" },
      replay: { type: "string" },
      help: { type: "boolean" },
    },
  }),
);
if (values.help) {
  console.log(usage);
} else if (values.replay !== undefined) {
  const failures = await replay(values.replay);
  for (const failure of failures) console.log(failure);
  console.log(failures.length === 0 ? "nothing is wrong" : `${failures.length} failures`);
  process.exitCode = failures.length === 0 ? 0 : 1;
} else {
  const { inputs, seed, concurrency } = wrongUsage(usage, () => ({
    inputs: wholeNumber("inputs", values.inputs, 1),
    seed: wholeNumber("seed", values.seed ?? String(Math.floor(Math.random() * 2 ** 31)), 0),
    concurrency: wholeNumber("concurrency", values.concurrency, 1),
  }));
  console.log(`seed ${seed}`);
  const result = await fuzz({
    inputs,
    seed,
    concurrency,
    onProgress: (line) => {
      if (process.stdout.isTTY) process.stdout.write(`\r\x1b[K${line}`);
      else if (/^\d*000 /.test(line)) console.log(line);
    },
  });
  if (process.stdout.isTTY) process.stdout.write("\n");
  for (const failure of result.failures) console.log(`\n${failure}`);
  const answers = Object.entries(result.answers).sort(([a], [b]) => a.localeCompare(b));
  console.log(`answers: ${answers.map(([what, count]) => `${what}: ${count}`).join(", ")}`);
  for (const { name, early, late } of result.memory) {
    console.log(
      `${name}: ${mebibytes(early)} MiB after a fifth, ${mebibytes(late)} MiB at the end`,
    );
  }
  console.log(
    `${result.sent} inputs in ${Math.round(result.seconds)} s, seed ${seed}: ${result.failures.length} failures`,
  );
  process.exitCode = result.failures.length === 0 ? 0 : 1;
}
