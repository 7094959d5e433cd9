import { searchProgram } from "./program.ts";
import { runProgram } from "./run-program.ts";

await runProgram(searchProgram());
