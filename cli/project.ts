import { fileURLToPath } from "node:url";

/** Root of this checkout, with a slash at its end. */
export const project = fileURLToPath(new URL("../", import.meta.url));
