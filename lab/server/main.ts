import { registerComparison } from "../rounds/comparison.ts";
import { runExperiment } from "../rounds/run-experiment.ts";
import { towerLoadNames } from "./loads.ts";
import { serverComparison } from "./server.ts";

await runExperiment("server", (command) =>
  registerComparison(command, serverComparison).option(
    "--model <models...>",
    `towers to measure with the loads ${towerLoadNames.join(" and ")} instead of the default model, compared with the ceiling: <model>[:image|:text]`,
  ),
);
