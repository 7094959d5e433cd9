#!/usr/bin/env node
// Loads the TypeScript command line in this process. `tsx` strips types; `npm run typecheck` checks them.
import "../contract/require-node.mjs";
import "./exit-with-parent.mjs";

const { register } = await import("tsx/esm/api");
register();
// Node parses the source map of every loaded file otherwise
if (process.env.CLIPSTACK_DEBUG === undefined) process.setSourceMapsEnabled(false);
await import("./main.ts");
