import { numberOption, runMain } from "../load/run-main.ts";
import { drainedRequests, trialGateway } from "./gateway.ts";

/** Maximum ratio of the gateway's resident memory at the end to that after two cycles. */
const maxGrowth = 1.15;

const usage = `npm run lab -- gateway-trial [--minutes N] [--program FILE]

Sends images and long texts to a gateway with three Triton servers, of which one is frozen, one is faulty and one is restarted in
turn, beside clients that do not read the responses to pipelined requests. Checks that every response is 200, that the resident
memory at the end is at most 15 % above that after two cycles, and that the gateway answers the outstanding requests when it stops.

  --minutes N     duration (default: 30); a cycle takes half a minute
  --program FILE  compiled server, dist/main.js (default: the sources, which start slowly)

Exit codes: 0 all checks passed, 1 a check failed, 2 wrong usage.`;

await runMain(
  usage,
  {
    minutes: { type: "string", default: "30" },
    program: { type: "string" },
  },
  async (values) => {
    const { answered, failures, memory, ejections, drained, stopped } = await trialGateway({
      minutes: numberOption("--minutes", values.minutes),
      program: values.program === undefined ? undefined : [values.program],
      onProgress: (line) => console.log(line),
    });
    const growth = (memory.at(-1) ?? 0) / (memory[Math.min(1, memory.length - 1)] ?? 0);
    console.log(
      `${answered} requests, failed ${JSON.stringify(failures)}; ${ejections} ejections; memory ${(growth * 100 - 100).toFixed(1)} % above that after two cycles`,
    );
    console.log(
      `stopped ${stopped}; ${drained} of ${drainedRequests} outstanding requests answered`,
    );
    const isAnswered = Object.keys(failures).length === 0 && drained === drainedRequests;
    return isAnswered && growth <= maxGrowth && stopped === "with code 0";
  },
);
