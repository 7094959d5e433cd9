// `npm start`: install what is missing, then hand over to TypeScript.
import "../cli/exit-with-parent.mjs";
import { ensureInstalled } from "./install.mjs";

ensureInstalled();
const { register } = await import("tsx/esm/api");
register();
process.argv.splice(2, 0, "start");
await import("../cli/main.ts");
