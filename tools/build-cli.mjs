// Writes the published package `clipstack` to cli/dist: the compiled command line, servers and stacks, and the files that they read, at
// their paths in the repository. Run it as `npm run build -w cli`; `npm pack ./cli/dist` packs the result.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { compile, dependenciesOf, imports, isCompiled, root } from "./compile-files.mjs";

const dist = join(root, "cli/dist");

/** Programs that the command line starts, and the build of the server image. */
const programs = [
  "cli/main.ts",
  "stacks/main.ts",
  "bulk/main.ts",
  "target/load/worker.ts",
  "inference-image/main.ts",
  "inference-image/healthcheck.ts",
];

/** Files that are read at run time or copied into images, as patterns of git. */
const readFiles = [
  ".dockerignore",
  "LICENSE",
  "NOTICE",
  "docker-bake.hcl",
  "bench/baselines/pytorch",
  "docs/*.md",
  "helm/clipstack",
  "inference-image/*.mjs",
  "inference-image/*.json",
  "inference-image/Dockerfile*",
  "model_repository",
  "model-tools/python",
  "model-tools/samples",
  "stacks/schemas",
];

const readJson = (/** @type {string} */ path) => JSON.parse(readFileSync(join(root, path), "utf8"));

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
const { files, packages } = dependenciesOf(programs.map((path) => join(root, path)));
compile(files, dist);
const tracked = execFileSync("git", ["ls-files", "-z", "--", ...readFiles], { cwd: root })
  .toString()
  .split("\0")
  // git lists symbolic links to weights, which do not exist
  .filter((path) => existsSync(join(root, path)) && !/(^|\/)test-|\.ts$|^$/.test(path))
  .filter((path) => !path.endsWith(".onnx"));
const imported = files.filter((file) => !isCompiled(file)).map((file) => relative(root, file));
for (const path of [...tracked, ...imported]) {
  mkdirSync(dirname(join(dist, path)), { recursive: true });
  cpSync(join(root, path), join(dist, path), {
    recursive: true,
    dereference: true,
    filter: (file) => !file.endsWith(".ts"),
  });
}
cpSync(join(root, "cli/README.md"), join(dist, "README.md"));
// the current folder is a project, whose model_repository has the weights
const bake = readFileSync(join(dist, "docker-bake.hcl"), "utf8");
writeFileSync(
  join(dist, "docker-bake.hcl"),
  bake.replace('"PACKAGE" { default = "."', '"PACKAGE" { default = "node_modules/clipstack"'),
);

const versions = Object.assign(
  {},
  ...[".", ...readJson("package.json").workspaces].map(
    (folder) => readJson(join(folder, "package.json")).dependencies,
  ),
);
const {
  private: _,
  devDependencies: _dev,
  scripts: _scripts,
  ...manifest
} = readJson("cli/package.json");
const text = {
  ...manifest,
  bin: { clipstack: "cli/main.js" },
  imports,
  dependencies: Object.fromEntries(packages.map((name) => [name, versions[name]])),
};
writeFileSync(join(dist, "package.json"), `${JSON.stringify(text, null, 2)}\n`);
