import { ciScript } from "../../client/triton/test-python.ts";
import { heyVariable } from "./baseline-generators.ts";

/** For tests: hey at `CLIPSTACK_HEY`, or built by `.ci/hey`. */
const path = process.env[heyVariable];
const found = path === undefined ? await ciScript("hey") : { path, missing: "" };

export const hey = found.path;
/** Reason why hey is missing; empty if it is available. */
export const heyMissing = found.missing;
