import { ciScript } from "../../client/triton/test-python.ts";
import { heyVariable } from "./peers.ts";

/** For tests: hey, which `CLIPSTACK_HEY` names; without it `.ci/hey` builds it. */
const given = process.env[heyVariable];
const found = given === undefined ? await ciScript("hey") : { path: given, missing: "" };

export const hey = found.path;
/** Why there is none here; empty where there is one. */
export const heyMissing = found.missing;
