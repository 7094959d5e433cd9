/** `npm run bench:generator`: how fast the load generator is, beside hey. */
import { parseArgs } from "node:util";
import { BenchError } from "../src/bench-error.ts";
import { compareGenerators, describeComparison, rateRatio } from "./compare-generators.ts";
import { heyVariable } from "./peers.ts";
import { numberOption, runMain } from "./run-main.ts";

const help = `Usage: npm run bench:generator -- [options]

How fast the load generator is: against a server that does nothing, beside hey, each on one core.

Options:
  --hey <path>           hey (default: $${heyVariable}, which .ci/hey prints)
  --rounds <n>           rounds; the order is reversed in each (default: 3)
  --seconds <n>          length of each measurement (default: 3)
  --concurrency <n>      clients, for the rate (default: 8)
  --request-bytes <n>    size of a request's body (default: 10000)
  --help

Exit code 1 where ours sends less than half of the requests a second that hey sends.

Example:
  $ ${heyVariable}=$(.ci/hey) npm run bench:generator
`;

const least = 0.5;

await runMain(async (signal) => {
  const { values } = parseArgs({
    options: {
      hey: { type: "string", default: process.env[heyVariable] },
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "3" },
      concurrency: { type: "string", default: "8" },
      "request-bytes": { type: "string", default: "10000" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    console.log(help);
    return true;
  }
  if (values.hey === undefined) throw new BenchError(`--hey or ${heyVariable} must name hey`);
  const comparison = await compareGenerators({
    hey: values.hey,
    rounds: numberOption("--rounds", values.rounds),
    seconds: numberOption("--seconds", values.seconds),
    concurrency: numberOption("--concurrency", values.concurrency),
    requestBytes: numberOption("--request-bytes", values["request-bytes"]),
    signal,
    say: (line) => console.error(line),
  });
  console.log(describeComparison(comparison));
  return rateRatio(comparison.rounds) >= least;
});
