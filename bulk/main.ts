import { runWorkerProcess } from "./worker-process.ts";

/** Process of one worker, configured by environment variables. */
await runWorkerProcess(process.env);
