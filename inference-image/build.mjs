// `npm run build -w inference-image`: compiles the server into `dist/` or the given folder. The result requires only Node,
// `onnxruntime-node` and `sharp`: `node dist/main.js`, `node dist/main.js tritonserver …`.
import { existsSync } from "node:fs";
import { cp, mkdir, rm, writeFile } from "node:fs/promises";
import { basename, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { licencesOf } from "./licences.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const root = join(here, "..");
const target = resolve(process.argv[2] ?? join(here, "dist"));
/** The published package contains the sources compiled to JavaScript. */
const extension = existsSync(join(here, "main.ts")) ? "ts" : "js";
/** Also emits every module of the server as an entry point, so that the tests of the sources import the compiled code. */
const forTests = process.argv[3] === "--for-tests";

/** Native libraries, loaded from node_modules. */
const external = ["onnxruntime-node", "sharp"];

/** Files that are read at run time, from the folder of the compiled files. */
const assets = [
  "inference/preprocess/image-kernel.wasm",
  "client/triton/proto",
  "model-tools/onnx/proto",
  "node_modules/parquet-wasm/node/parquet_wasm_bg.wasm",
];

/** @type {import("esbuild").BuildOptions} */
const options = {
  absWorkingDir: here,
  outdir: target,
  bundle: true,
  format: "esm",
  platform: "node",
  target: "node20.19",
  external,
  legalComments: "none", // THIRD-PARTY-LICENSES.txt has all licences
  metafile: true,
  logLevel: "warning",
};

/** @type {import("esbuild").BuildOptions} */
const server = {
  ...options,
  entryPoints: [
    "main",
    "server/body-worker",
    "models/tokenizer-worker",
    "../emulator/infer-worker",
  ].map((path) => join(here, `${path}.${extension}`)),
  entryNames: "[name]",
  chunkNames: "[name]-[hash]",
  splitting: true,
  // CommonJS packages require Node's modules and their file name at run time
  banner: {
    js: 'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url); const __filename = import.meta.filename; const __dirname = import.meta.dirname;',
  },
  logOverride: { "direct-eval": "silent" }, // protobufjs
};

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
const results = await Promise.all([
  build(forTests ? await withModules(server) : server),
  build({
    ...options,
    entryPoints: [
      "session/onnx-worker",
      "preprocess/preprocess-worker",
      "preprocess/preprocess-process",
    ].map((name) => join(root, `inference/${name}.mjs`)),
    entryNames: "[name]",
    external,
    outExtension: { ".js": ".mjs" },
  }),
  // a separate build shares no chunks, so that it loads no other file
  build({ ...options, entryPoints: [join(here, `healthcheck.${extension}`)] }),
]);
for (const asset of assets) {
  await cp(join(root, asset), join(target, basename(asset)), { recursive: true });
}
await writeFile(join(target, "package.json"), `${JSON.stringify({ type: "module" })}\n`);
const inputs = results.flatMap(({ metafile }) => Object.keys(metafile.inputs));
await writeFile(join(target, "THIRD-PARTY-LICENSES.txt"), licencesOf(inputs, here));
console.log(`compiled into ${relative("", target) || "."}`);

/**
 * Adds an entry point per module of the server. All are in one folder, because compiled modules find workers and assets in their own.
 *
 * @param {import("esbuild").BuildOptions} options
 */
async function withModules(options) {
  const { metafile } = await build({ ...options, write: false });
  const modules = Object.keys(metafile.inputs)
    .map((input) => relative(root, join(here, input)))
    .filter((path) => path.endsWith(".ts") && !path.startsWith("node_modules"));
  const entries = Object.fromEntries(
    modules.map((path) => [path.slice(0, -".ts".length).replaceAll("/", "--"), join(root, path)]),
  );
  const programs = options.entryPoints.map((path) => [basename(path, ".ts"), path]);
  return { ...options, entryPoints: { ...Object.fromEntries(programs), ...entries } };
}
