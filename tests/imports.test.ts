import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { parseAst, transformWithEsbuild } from "vite";
import { expect, test } from "vitest";
import { imageBytes, imageTowerOf, textTowerOf } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { tritonModelName } from "../contract/triton-models.ts";

const root = fileURLToPath(new URL("../", import.meta.url));

/** Packages, highest first. A package imports only from packages below it. */
const packages = [
  "tools",
  "lab",
  "create-clipstack",
  "cli",
  "stacks",
  "verify",
  "review",
  "bench",
  "target",
  "report",
  "artefact",
  "inference-image",
  "emulator",
  "http",
  "bulk",
  "constructs",
  "model-tools",
  "client",
  "inference",
  "monitoring",
  "contract",
  "examples/photo-dedupe",
  "examples/search",
];

const checksArtefact =
  "it checks what was synthesized, not the code that produced it: read the value from artefact or contract";
const startsProcesses =
  "it starts the servers as processes: address them by URL, or move what both need to contract";
const noInfrastructure = "servers contain no infrastructure code: move the value to contract";
const constructsOnly = "constructs work without our clients and models: move the value to contract";
const onlyMeasures =
  "nothing that users install imports the laboratory: let tools/render.ts write its result to a file, or move what both need to a package below";
const declares = "a stack declares; what judges or measures it is called by cli";

/** Packages below that a package nevertheless does not import, and why. */
const forbidden: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  verify: {
    constructs: checksArtefact,
    "inference-image": startsProcesses,
    emulator: startsProcesses,
  },
  bench: {
    constructs: checksArtefact,
    "inference-image": startsProcesses,
    emulator: startsProcesses,
  },
  target: {
    constructs: checksArtefact,
    "inference-image": startsProcesses,
    emulator: startsProcesses,
  },
  review: { "inference-image": startsProcesses, emulator: startsProcesses },
  artefact: { constructs: checksArtefact },
  stacks: { review: declares, verify: declares, bench: declares },
  "inference-image": { constructs: noInfrastructure },
  emulator: { constructs: noInfrastructure },
  bulk: { constructs: noInfrastructure },
  http: { constructs: noInfrastructure, "model-tools": noInfrastructure },
  constructs: { client: constructsOnly, inference: constructsOnly, "model-tools": constructsOnly },
};

/** npm packages that only some folders may import. */
const guarded: readonly { readonly name: RegExp; readonly only: readonly string[] }[] = [
  { name: /^#cdktf$/, only: ["constructs/terraform/cdktf.ts"] },
  { name: /^(#providers\/|constructs$)/, only: ["constructs/", "stacks/"] },
  // named #cdktf and #providers, which resolve to the fork too
  { name: /^(cdktf|cdktn|@cdkt[fn]\/.*)$/, only: [] },
  { name: /^@grafana\//, only: ["monitoring/grafana.ts"] },
  // the root of a provider package loads every resource: seconds of synth time
  { name: /^#providers\/[a-z]+(\/index.js)?$/, only: [] },
  {
    name: /^(fastify|@fastify\/)/,
    only: ["inference-image/", "emulator/", "http/", "examples/"],
  },
  {
    name: /^(onnxruntime-node|sharp)$/,
    only: ["inference/", "model-tools/samples/", "examples/", "lab/bulk/", "lab/dedupe/"],
  },
  // the contract is plain data and schemas
  {
    name: /^(?!zod$)/,
    only: [...packages.filter((name) => name !== "contract").map((name) => `${name}/`), "docs/"],
  },
];

interface Import {
  readonly file: string;
  /** The module as written: a relative path or the name of a package. */
  readonly from: string;
}

const isRelative = (from: string) => from.startsWith(".");

function* sourceFiles(folder: string): Generator<string> {
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) {
      if (!["node_modules", "dist"].includes(entry.name)) yield* sourceFiles(path);
    } else if (/\.m?[jt]s$/.test(entry.name)) yield path;
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

/** Path of the imported file, relative to the repository. */
function targetOf({ file, from }: Import): string {
  return relative(root, resolve(root, dirname(file), from))
    .split(sep)
    .join("/");
}

function packageOf(file: string): string | undefined {
  return packages.find((name) => file.startsWith(`${name}/`));
}

/** Tests may import their fixtures from anywhere; the direction applies to the code that ships. */
const isTest = (file: string) => /\.test\.ts$|\/test-[a-z-]+\.ts$|\.suite\.ts$/.test(file);

const everyFile = [...packages, "tests"].flatMap((folder) => [...sourceFiles(folder)]);
const files = everyFile.filter((file) => !isTest(file) && !file.startsWith("tests/"));
const imports = files.flatMap(importsOf);

/** Imports between packages against the direction, as sentences that say what to do. */
function wrongDirections(all: readonly Import[]): readonly string[] {
  return all
    .filter(({ from }) => isRelative(from) && !from.endsWith("/package.json"))
    .flatMap((each) => {
      const importer = packageOf(each.file);
      const imported = packageOf(targetOf(each));
      const what = `${each.file} imports ${targetOf(each)}`;
      if (importer === undefined || imported === undefined) {
        return [`${what}, which is in no package: list its package in tests/imports.test.ts`];
      }
      if (importer === imported) return [];
      const reason = forbidden[importer]?.[imported];
      if (reason !== undefined)
        return [`${what}, but ${importer} must not use ${imported}: ${reason}`];
      if (packages.indexOf(importer) < packages.indexOf(imported)) return [];
      if (imported === "lab") return [`${what}, but ${onlyMeasures}`];
      return [
        `${what}, but ${imported} is above ${importer}: move what both need to a package below them, or pass it as an argument`,
      ];
    });
}

/** Folders of a package, highest first, from the line of its README; `.` are the files outside folders. */
function folderOrder(name: string): readonly string[] {
  const line = /^Folders, highest first: (.*)$/m.exec(
    readFileSync(join(root, name, "README.md"), "utf8"),
  );
  const [list = ""] = (line?.[1] ?? "").split(/(?<=`)\.(?=\s|$)/);
  return [...list.matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? "");
}

/** The folder of a file within its package, `.` for a file outside folders. */
function folderOf(file: string, name: string): string {
  const parts = file.slice(name.length + 1).split("/");
  return parts.length === 1 ? "." : (parts[0] ?? ".");
}

/** Imports between folders of a package against the order of its README, as sentences that say what to do. */
function wrongFolders(
  all: readonly Import[],
  orderOf: (name: string) => readonly string[] = folderOrder,
): readonly string[] {
  return all
    .filter(({ from }) => isRelative(from) && !from.endsWith("/package.json"))
    .flatMap((each) => {
      const name = packageOf(each.file);
      if (name === undefined || packageOf(targetOf(each)) !== name) return [];
      const [importer, imported] = [folderOf(each.file, name), folderOf(targetOf(each), name)];
      if (importer === imported) return [];
      const order = orderOf(name);
      for (const folder of [importer, imported]) {
        if (!order.includes(folder)) {
          return [`${name}/README.md: 'Folders, highest first:' must name '${folder}'`];
        }
      }
      if (order.indexOf(importer) < order.indexOf(imported)) return [];
      return [
        `${each.file} imports ${targetOf(each)}, but in ${name} '${imported}' is above '${importer}': move what both need to '${importer}' or a folder below it, or pass it as an argument`,
      ];
    });
}

/** Imports of npm packages outside the folders that may import them, as `file -> package`. */
function wrongPackages(all: readonly Import[]): readonly string[] {
  return all
    .filter(({ from }) => !isRelative(from) && !from.startsWith("node:"))
    .filter(({ file, from }) =>
      guarded.some(
        ({ name, only }) => name.test(from) && !only.some((path) => file.startsWith(path)),
      ),
    )
    .map(({ file, from }) => `${file} -> ${from}`);
}

/** Import cycles, type imports included, each as the sorted files of one strongly connected component. */
function cycles(all: readonly Import[]): readonly string[] {
  const targets = new Map<string, string[]>();
  for (const each of all) {
    if (!isRelative(each.from)) continue;
    targets.set(each.file, [...(targets.get(each.file) ?? []), targetOf(each)]);
  }
  // Tarjan's algorithm
  const found: string[] = [];
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const visit = (file: string): void => {
    index.set(file, index.size);
    low.set(file, index.get(file)!);
    stack.push(file);
    for (const target of targets.get(file) ?? []) {
      if (!index.has(target)) visit(target);
      if (stack.includes(target)) low.set(file, Math.min(low.get(file)!, low.get(target)!));
    }
    if (low.get(file) !== index.get(file)) return;
    const component = stack.splice(stack.indexOf(file));
    if (component.length > 1) found.push(component.sort().join(" - "));
  };
  for (const file of targets.keys()) if (!index.has(file)) visit(file);
  return found;
}

test("finds the imports of every package", () => {
  const found = new Set(imports.map(({ file }) => packageOf(file)));
  for (const name of packages) expect(found, name).toContain(name);
});

test("reads JavaScript as well", () => {
  expect(files).toContain("tools/start.mjs");
});

test("a package imports only from packages below it", () => {
  expect(wrongDirections(imports)).toEqual([]);
});

test("a folder imports only from folders below it in the README of its package", () => {
  expect([...new Set(wrongFolders(imports))]).toEqual([]);
});

test("a command imports no other command: what several need is in cli/prepare", () => {
  const commandFolder = /^cli\/commands\//;
  expect(
    imports
      .filter(({ file, from }) => commandFolder.test(file) && isRelative(from))
      .filter((each) => commandFolder.test(targetOf(each)))
      .map((each) => `${each.file} imports ${targetOf(each)}: move what both need to cli/prepare`),
  ).toEqual([]);
});

test("a file of the command line imports at most 20 files: beyond that, it does two things", () => {
  const counts = new Map<string, Set<string>>();
  for (const each of imports) {
    if (!each.file.startsWith("cli/") || !isRelative(each.from)) continue;
    counts.set(each.file, (counts.get(each.file) ?? new Set()).add(targetOf(each)));
  }
  // the list of commands
  counts.delete("cli/program.ts");
  const large = [...counts].filter(([, targets]) => targets.size > 20);
  expect(large.map(([file, { size }]) => `${file} imports ${size} files`)).toEqual([]);
});

test("npm packages are imported only where they belong", () => {
  expect(wrongPackages(imports)).toEqual([]);
});

test("there are no import cycles", () => {
  expect(cycles(imports)).toEqual([]);
});

test("no module that test files share registers a hook: only the first file of a worker would have it", () => {
  const shared = everyFile.filter((file) => !/\.(test|suite)\.ts$/.test(file));
  const hook = /^(?:before|after)(?:Each|All)\(/m;
  expect(shared.filter((file) => hook.test(readFileSync(join(root, file), "utf8")))).toEqual([]);
});

test("an import against the direction is found, and the message says what to do", () => {
  expect(
    wrongDirections([
      { file: "contract/a.ts", from: "../inference/session/types.ts" },
      { file: "verify/a.ts", from: "../constructs/state.ts" },
      { file: "stacks/a.ts", from: "../review/review.ts" },
      { file: "cli/a.ts", from: "../lab/sizes.ts" },
    ]),
  ).toEqual([
    "contract/a.ts imports inference/session/types.ts, but inference is above contract: move what both need to a package below them, or pass it as an argument",
    `verify/a.ts imports constructs/state.ts, but verify must not use constructs: ${checksArtefact}`,
    `stacks/a.ts imports review/review.ts, but stacks must not use review: ${declares}`,
    "cli/a.ts imports lab/sizes.ts, but nothing that users install imports the laboratory: let tools/render.ts write its result to a file, or move what both need to a package below",
  ]);
});

test("an import against the order of folders is found, and the message says what to do", () => {
  const order = () => [".", "run", "load"];
  expect(
    wrongFolders(
      [
        { file: "verify/run/a.ts", from: "../load/b.ts" },
        { file: "verify/load/a.ts", from: "../run/b.ts" },
        { file: "verify/load/a.ts", from: "../new/b.ts" },
      ],
      order,
    ),
  ).toEqual([
    "verify/load/a.ts imports verify/run/b.ts, but in verify 'run' is above 'load': move what both need to 'load' or a folder below it, or pass it as an argument",
    "verify/README.md: 'Folders, highest first:' must name 'new'",
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

test("a cycle is found", () => {
  expect(
    cycles([
      { file: "bench/a.ts", from: "./b.ts" },
      { file: "bench/b.ts", from: "./c.ts" },
      { file: "bench/c.ts", from: "./a.ts" },
      { file: "bench/d.ts", from: "./a.ts" },
    ]),
  ).toEqual(["bench/a.ts - bench/b.ts - bench/c.ts"]);
});

/** Facts of the default model, which only its spec states. */
const [image, text] = [imageTowerOf(defaultModel), textTowerOf(defaultModel)];
const numbers: ReadonlySet<unknown> = new Set([
  ...[image.input.size.width, defaultModel.embedding.width],
  ...[imageBytes(image, "uint8"), imageBytes(image, "fp32")],
  ...[...image.input.mean, ...image.input.std],
  ...[text.input.contextLength, text.input.vocabularySize],
  ...[image, text].flatMap((tower) => [tower.millionParameters, tower.gigaMacsPerItem]),
]);
const names = [defaultModel.name, tritonModelName(defaultModel, "fp32"), "ViT-B-32"];

/** Fast check of a text without underscores, because most files have none of the values. */
const mayHaveFacts = new RegExp(
  [...numbers, ...names.map((name) => name.replaceAll("_", ""))].join("|"),
  "i",
);

/**
 * Returns the facts of the default model in the literals of a program: numbers, and strings without spaces, which are names and paths,
 * not sentences and examples for users. Comments and types do not count.
 */
async function modelFacts(file: string, text: string): Promise<readonly (number | string)[]> {
  if (!mayHaveFacts.test(text.replaceAll("_", ""))) return [];
  const { code } = await transformWithEsbuild(text, file, { loader: "ts" });
  const facts = new Set<number | string>();
  const visit = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    const { type, value } = node as { readonly type?: string; readonly value?: unknown };
    const literal =
      type === "TemplateElement" ? (value as { readonly cooked: string }).cooked : value;
    if (typeof literal === "number" && numbers.has(literal)) facts.add(literal);
    if (typeof literal === "string" && !/\s/.test(literal)) {
      if (names.some((name) => literal.toLowerCase().includes(name.toLowerCase()))) {
        facts.add(literal);
      }
    }
    for (const child of Object.values(node)) visit(child);
  };
  visit(parseAst(code));
  return [...facts];
}

/** Equal values with another meaning, and tables and measurements that name their models. */
const exceptions: Readonly<Record<string, readonly (number | string)[]>> = {
  // MiB, connections, requests and pixels
  "constructs/docker/engine-cache.ts": [512],
  "contract/server/server-env.ts": [512],
  "examples/photo-dedupe/embed.ts": [512],
  "model-tools/samples/scenes.ts": [224],
  "stacks/settings/kind-settings.ts": [512],
  "verify/cluster/cluster-api.ts": [512],
  "verify/drills/cluster-run.ts": [512],
  // architectures by model
  "model-tools/generate/architectures.ts": ["openclip-vit-b32", "vit-b-32"],
  "model-tools/generate/text-architectures.ts": [512, "openclip-vit-b32"],
  // measurements of one model
  "bench/capacity/service-times.ts": ["../../contract/models/openclip-vit-b32.ts"],
  "constructs/checks/container-limits.ts": [512], // MiB
  "constructs/checks/vram.ts": ["../../contract/models/openclip-vit-b32.ts", 512],
  "lab/bulk/loads.ts": [512], // images
  "lab/gpu/acceptance-servers.ts": ["../../contract/models/openclip-vit-b32.ts"],
  "lab/gpu/acceptance.ts": ["../../contract/models/openclip-vit-b32.ts"],
  // an example for users
  "tools/render-chart-values.ts": ["https://models.example/openclip_vit_b32/model.trt-fp16.onnx"],
};

test("no code but the catalogue states facts of one model", async () => {
  const found: Record<string, readonly (number | string)[]> = {};
  for (const file of files) {
    // the catalogue, and AssemblyScript
    if (/^(contract\/models|inference\/preprocess\/kernel)\//.test(file)) continue;
    const facts = await modelFacts(file, readFileSync(join(root, file), "utf8"));
    if (facts.length > 0) found[file] = facts;
  }
  expect(found).toEqual(exceptions);
});

test("facts of one model are found in code, not in comments, types and sentences", async () => {
  const program = `
    /** 224 pixels, openclip_vit_b32 */
    import { openclipVitB32 } from "./openclip-vit-b32.ts";
    type Side = 224;
    const shape: readonly number[] = [3, 224, 224];
    const mean = [0.48145466];
    const file = \`/models/openclip_vit_b32/\${1}\`;
    const help = "for example openclip-vit-b32";
  `;
  expect(await modelFacts("a.ts", program)).toEqual([
    "./openclip-vit-b32.ts",
    224,
    0.48145466,
    "/models/openclip_vit_b32/",
  ]);
});
