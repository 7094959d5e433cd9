import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
/** In `node_modules`, so that the compiled files find packages with native libraries, and Vitest imports them unaltered. */
const target = join(root, "node_modules/.clipstack-compiled");

/**
 * Replaces the modules of the server that tests import by their compiled forms, which share one instance of each class and constant.
 * Helpers of tests, and modules that are not part of the server, stay sources.
 */
export function compiledServer(): Plugin {
  return {
    name: "compiled-server",
    enforce: "pre", // before the resolver of Vite
    buildStart() {
      const build = join(root, "inference-image/build.mjs");
      execFileSync(process.execPath, [build, target, "--for-tests"]);
    },
    resolveId(source, importer) {
      if (!source.endsWith(".ts") || !source.startsWith(".") || importer === undefined) return null;
      const path = relative(root, resolve(dirname(importer), source));
      const compiled = join(target, `${path.slice(0, -3).replaceAll("/", "--")}.js`);
      return existsSync(compiled) ? { id: compiled, external: true } : null;
    },
  };
}
