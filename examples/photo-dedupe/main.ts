import { runProgram } from "../search/run-program.ts";
import { dedupeProgram } from "./program.ts";

await runProgram(dedupeProgram());
