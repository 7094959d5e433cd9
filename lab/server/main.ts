import { runExperiment } from "../run-experiment.ts";
import { registerBenchServer } from "./bench-server.ts";

await runExperiment("server", registerBenchServer);
