import { runExperiment } from "../server/run-experiment.ts";
import { registerBenchGateway } from "./bench-gateway.ts";

await runExperiment("gateway", registerBenchGateway);
