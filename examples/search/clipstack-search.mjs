#!/usr/bin/env node
// Loads the TypeScript command line in this process. `tsx` strips types; `npm run typecheck` checks them. The tsconfig names the client's
// sources for use inside the repository; elsewhere the installed package is used.
import { fileURLToPath } from "node:url";
import { register } from "tsx/esm/api";

register({ tsconfig: fileURLToPath(new URL("tsconfig.json", import.meta.url)) });
await import("./main.ts");
