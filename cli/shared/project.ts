import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** Root of this checkout, with a slash at its end. */
export const project = fileURLToPath(new URL("../../", import.meta.url));

/** Folder of the environments: CLIPSTACK_ENVIRONMENTS_DIR, relative to the checkout, or `environments`. */
export function environmentsFolder(): string {
  return resolve(project, process.env.CLIPSTACK_ENVIRONMENTS_DIR ?? "environments");
}
