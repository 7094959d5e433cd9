// `npm start`: installs missing packages, then runs `clipstack start`.
import "../contract/require-node.mjs";
import "../cli/exit-with-parent.mjs";
import { ensureInstalled } from "./install.mjs";

ensureInstalled();
const { register } = await import("tsx/esm/api");
register();
process.argv.splice(2, 0, "start");
await import("../cli/main.ts");
