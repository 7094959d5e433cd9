import { registerComparison } from "../rounds/comparison.ts";
import { runExperiment } from "../rounds/run-experiment.ts";
import { gatewayComparison } from "./gateway.ts";

await runExperiment("gateway", (command) => registerComparison(command, gatewayComparison));
