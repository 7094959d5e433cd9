import { registerComparison } from "../rounds/comparison.ts";
import { runExperiment } from "../rounds/run-experiment.ts";
import { bulkComparison } from "./bulk.ts";

await runExperiment("bulk", (command) => registerComparison(command, bulkComparison));
