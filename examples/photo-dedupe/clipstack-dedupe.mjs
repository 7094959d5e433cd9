#!/usr/bin/env node
// Loads the TypeScript command line in this process. `tsx` strips types; `npm run typecheck` checks them.
import { register } from "tsx/esm/api";

register();
await import("./main.ts");
