import { numberOption, runMain } from "../load/run-main.ts";
import { stops } from "./stops.ts";

const usage = `npm run lab -- stops [--stops N] [--parallel N] [--program FILE]

Stops servers while eight clients send requests: the embed server and the Triton emulator (HTTP, gRPC) in turn, and the embed server
with requests of 14 seconds. Every request must be answered or rejected with a reason, and every server must end with code 0.

  --stops N       number of stops (default: 200)
  --parallel N    servers at a time (default: 4)
  --program FILE  compiled server, dist/main.js (default: the sources, which start slowly)

Exit codes: 0 no request was lost, 1 some were, 2 wrong usage.`;

await runMain(
  usage,
  {
    stops: { type: "string", default: "200" },
    parallel: { type: "string", default: "4" },
    program: { type: "string" },
  },
  async (values) => {
    const count = numberOption("--stops", values.stops);
    const { answered, rejected, lost, failed } = await stops({
      stops: count,
      parallel: numberOption("--parallel", values.parallel),
      program: values.program === undefined ? undefined : [values.program],
      onProgress: (line) => console.log(line),
    });
    console.log(
      `${count} stops, ${answered} requests answered, ${rejected} rejected, ${lost.length} lost`,
    );
    for (const line of [...lost, ...failed]) console.log(line);
    return lost.length + failed.length === 0;
  },
);
