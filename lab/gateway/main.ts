import { runExperiment } from "../run-experiment.ts";
import { registerBenchGateway } from "./bench-gateway.ts";

await runExperiment("gateway", registerBenchGateway);
