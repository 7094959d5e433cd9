import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../", import.meta.url));

/**
 * What each folder may import besides itself. A folder belongs to the longest name that it starts with. `cli`
 * puts the parts together, so it may import all of them; nobody imports it.
 */
const layers: Readonly<Record<string, readonly string[]>> = {
  contract: [],
  inference: ["contract"],
  "model-tools": ["contract", "inference"],
  "client/triton": ["contract"],
  "inference-image": ["contract", "inference", "model-tools", "client/triton"],
  client: ["contract", "inference", "client/triton"],
  constructs: ["contract"],
  stacks: ["constructs", "contract", "review"],
  review: ["constructs", "contract", "client/triton"],
  cli: [
    "stacks",
    "review",
    "constructs",
    "bench",
    "model-tools/samples",
    "contract",
    "inference",
    "model-tools",
    "client/triton",
    "inference-image",
    "client",
  ],
  bench: ["contract", "client/triton", "client", "model-tools/samples"],
  "model-tools/samples": [],
  "tools/trials": ["bench", "contract", "model-tools", "client/triton"],
  "examples/photo-dedupe": ["contract", "client", "model-tools/samples"],
};

/** npm packages that only some folders may import. */
const guarded: readonly { readonly name: RegExp; readonly only: readonly string[] }[] = [
  { name: /^cdktf$/, only: ["constructs/cdktf.ts"] },
  { name: /^(@cdktf\/|constructs$)/, only: ["constructs/", "stacks/"] },
  // the root of a provider package loads every resource: seconds of synth time
  { name: /^@cdktf\/provider-[a-z]+$/, only: [] },
  {
    name: /^(fastify|@fastify\/)/,
    only: ["inference-image/", "examples/photo-dedupe/"],
  },
  {
    name: /^(onnxruntime-node|sharp)$/,
    only: ["inference/", "model-tools/samples/", "examples/photo-dedupe/"],
  },
];

/** The contract is plain data and schemas. */
const contractPackages = /^zod$/;

interface Import {
  readonly file: string;
  readonly from: string;
}

function* sourceFiles(folder: string): Generator<string> {
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory() && entry.name !== "node_modules") yield* sourceFiles(path);
    else if (/\.m?[jt]s$/.test(entry.name)) yield path;
  }
}

const importPattern =
  /^\s*(?:import|export)\s[^;]*?from\s+"([^"]+)"|^\s*import\s+"([^"]+)"|\bimport\(\s*"([^"]+)"\s*\)/gm;

function importsOf(file: string): readonly Import[] {
  const text = readFileSync(join(root, file), "utf8");
  return [...text.matchAll(importPattern)].map((match) => ({
    file,
    from: match[1] ?? match[2] ?? match[3] ?? "",
  }));
}

function layerOf(file: string): string | undefined {
  return Object.keys(layers)
    .filter((layer) => file.startsWith(`${layer}/`))
    .sort((a, b) => b.length - a.length)[0];
}

/** A test may import what it tests with; the direction holds for what ships. */
const isTest = (file: string) => /\.test\.ts$|\/test-[a-z-]+\.ts$|\.suite\.ts$/.test(file);

const files = ["stacks", "constructs", "inference-image", "bench", "examples"]
  .flatMap((folder) => [...sourceFiles(folder)])
  .filter((file) => !isTest(file));
const imports = files.flatMap(importsOf);

/** Every import of a file of ours that the layers do not allow, as `file -> file`. */
function wrongDirections(all: readonly Import[]): readonly string[] {
  return all
    .filter(({ from }) => from.startsWith(".") && !from.endsWith("/package.json"))
    .map(({ file, from }) => ({
      file,
      target: relative(root, resolve(root, dirname(file), from))
        .split(sep)
        .join("/"),
    }))
    .filter(({ file, target }) => {
      const layer = layerOf(file);
      const targetLayer = layerOf(target);
      if (layer === undefined || targetLayer === undefined) return true;
      return targetLayer !== layer && !layers[layer]?.includes(targetLayer);
    })
    .map(({ file, target }) => `${file} -> ${target}`);
}

/** Every import of a package outside the folders that may import it, as `file -> package`. */
function wrongPackages(all: readonly Import[]): readonly string[] {
  return all
    .filter(({ from }) => !from.startsWith(".") && !from.startsWith("node:"))
    .filter(({ file, from }) => {
      if (layerOf(file) === "contract") return !contractPackages.test(from);
      return guarded.some(
        ({ name, only }) => name.test(from) && !only.some((path) => file.startsWith(path)),
      );
    })
    .map(({ file, from }) => `${file} -> ${from}`);
}

test("finds the imports of every folder", () => {
  const found = new Set(imports.map(({ file }) => layerOf(file)));
  for (const layer of Object.keys(layers)) {
    if (layer !== "contract") expect(found, layer).toContain(layer);
  }
});

test("reads JavaScript as well", () => {
  expect(files).toContain("tools/start.mjs");
});

test("imports go one way", () => {
  expect(wrongDirections(imports)).toEqual([]);
});

test("packages are imported only where they belong", () => {
  expect(wrongPackages(imports)).toEqual([]);
});

test("an import against the direction is found", () => {
  expect(
    wrongDirections([
      { file: "bench/run/a.ts", from: "../../stacks/settings.ts" },
      { file: "contract/a.ts", from: "../engine/types.ts" },
      { file: "constructs/a.ts", from: "../stacks/settings.ts" },
      { file: "stacks/a.ts", from: "../cli/main.ts" },
    ]),
  ).toEqual([
    "bench/run/a.ts -> stacks/settings.ts",
    "contract/a.ts -> inference/session/types.ts",
    "constructs/a.ts -> stacks/settings.ts",
    "stacks/a.ts -> cli/main.ts",
  ]);
});

test("a package outside its folder is found", () => {
  expect(
    wrongPackages([
      { file: "stacks/a.ts", from: "cdktf" },
      { file: "constructs/a.ts", from: "@cdktf/provider-docker" },
      { file: "bench/run/a.ts", from: "onnxruntime-node" },
      { file: "contract/a.ts", from: "yaml" },
    ]),
  ).toEqual([
    "stacks/a.ts -> cdktf",
    "constructs/a.ts -> @cdktf/provider-docker",
    "bench/run/a.ts -> onnxruntime-node",
    "contract/a.ts -> yaml",
  ]);
});
