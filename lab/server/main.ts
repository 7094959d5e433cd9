import { registerBenchServer } from "./bench-server.ts";
import { runExperiment } from "./run-experiment.ts";

await runExperiment("server", registerBenchServer);
