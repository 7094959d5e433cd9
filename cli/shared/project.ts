import { resolve } from "node:path";
import { projectFolder } from "../../model-tools/files/folders.ts";

/** Folder of the environments: CLIPSTACK_ENVIRONMENTS_DIR, relative to the project, or `environments`. */
export function environmentsFolder(): string {
  return resolve(projectFolder, process.env.CLIPSTACK_ENVIRONMENTS_DIR ?? "environments");
}
