import { numberOption, runMain } from "../load/run-main.ts";
import { fuzz, replay } from "./fuzz.ts";

const usage = `npm run lab -- fuzz [--inputs N] [--seed N] [--concurrency N] [--replay FILE]

Sends malformed inputs to all endpoints of the embed server and of the Triton emulator and checks that both keep working: no
crash, no hang, no 5xx except 503, unchanged embeddings, no memory growth.

  --inputs N       number of inputs (default: 50000)
  --seed N         the same seed gives the same inputs (default: random)
  --concurrency N  inputs in flight (default: 8)
  --replay FILE    send only the inputs that an earlier run saved in FILE

Exit codes: 0 no failures, 1 failures, 2 wrong usage.`;

await runMain(
  usage,
  {
    inputs: { type: "string", default: "50000" },
    seed: { type: "string", default: String(1 + Math.floor(Math.random() * 2 ** 31)) },
    concurrency: { type: "string", default: "8" },
    replay: { type: "string" },
  },
  async (values) => {
    if (values.replay !== undefined) {
      const failures = await replay(values.replay);
      console.log([...failures, `${failures.length} failures`].join("\n"));
      return failures.length === 0;
    }
    const seed = numberOption("--seed", values.seed);
    console.log(`seed ${seed}`);
    const { failures, responses, memory, sent, seconds } = await fuzz({
      seed,
      inputs: numberOption("--inputs", values.inputs),
      concurrency: numberOption("--concurrency", values.concurrency),
      onProgress: (line) => {
        if (process.stdout.isTTY) process.stdout.write(`\r\x1b[K${line}`);
        else if (/^\d*000 /.test(line)) console.log(line);
      },
    });
    if (process.stdout.isTTY) process.stdout.write("\n");
    for (const failure of failures) console.log(`\n${failure}`);
    const counts = Object.entries(responses).sort(([a], [b]) => a.localeCompare(b));
    console.log(`responses: ${counts.map(([status, count]) => `${status}: ${count}`).join(", ")}`);
    for (const { name, early, late } of memory) {
      console.log(
        `${name}: ${Math.round(early)} MB after a fifth of the inputs, ${Math.round(late)} MB at the end`,
      );
    }
    console.log(
      `${sent} inputs in ${Math.round(seconds)} s, seed ${seed}: ${failures.length} failures`,
    );
    return failures.length === 0;
  },
);
