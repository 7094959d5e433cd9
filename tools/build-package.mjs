// Compiles the published package in the current folder to dist/, together with the files of the other packages that its index.ts
// needs. Run it as `npm run build -w client`; `npm pack` runs it too.
import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const folder = process.cwd();
const dist = join(folder, "dist");

const importPattern =
  /\bfrom\s+"([^"]+)"|^\s*import\s+"([^"]+)"|\bimport\(\s*"([^"]+)"\s*\)|\bnew URL\("([^"]+)", import\.meta\.url\)/gm;
const compiled = /\.[cm]?[jt]s$/;

/** Returns `entry`, all files that it needs, and the npm packages that they import. */
function dependenciesOf(/** @type {string} */ entry) {
  const files = new Set([entry]);
  const packages = new Set();
  for (const file of files) {
    if (!compiled.test(file)) continue;
    for (const match of readFileSync(file, "utf8").matchAll(importPattern)) {
      const specifier = match[1] ?? match[2] ?? match[3] ?? match[4];
      if (specifier.startsWith(".")) files.add(resolve(dirname(file), specifier));
      else if (!specifier.startsWith("node:")) packages.add(packageOf(specifier));
    }
  }
  return { files: [...files], packages: [...packages] };
}

function packageOf(/** @type {string} */ specifier) {
  return specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
}

function compile(/** @type {string[]} */ files) {
  const config = join(dist, "tsconfig.json");
  const compilerOptions = {
    noEmit: false,
    declaration: true,
    rewriteRelativeImportExtensions: true,
    rootDir: root,
    outDir: dist,
    // declares WebAssembly
    lib: ["ES2023", "DOM"],
  };
  const text = {
    extends: relative(dist, join(root, "tsconfig.json")),
    compilerOptions,
    include: [],
    files,
  };
  writeFileSync(config, JSON.stringify(text));
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, "-p", config], { stdio: "inherit" });
  rmSync(config);
}

const { dependencies = {}, peerDependencies = {} } = JSON.parse(
  readFileSync(join(folder, "package.json"), "utf8"),
);
const { files, packages } = dependenciesOf(join(folder, "index.ts"));
const undeclared = packages.filter((name) => !(name in dependencies || name in peerDependencies));
if (undeclared.length > 0) {
  console.error(
    `package.json must declare the imported packages, missing ${undeclared.join(", ")}`,
  );
  process.exit(1);
}

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
compile(files.filter((file) => compiled.test(file)));
for (const file of files) {
  const output = join(dist, relative(root, file));
  if (!compiled.test(file)) cpSync(file, output, { recursive: true });
  if (!file.endsWith(".ts")) continue;
  // the compiler rewrites imports in JavaScript, but not in declarations
  const declarations = output.replace(/\.ts$/, ".d.ts");
  const text = readFileSync(declarations, "utf8");
  writeFileSync(declarations, text.replaceAll(/(\bfrom |\bimport\()"(\.[^"]+)\.ts"/g, '$1"$2.js"'));
}
for (const name of ["LICENSE", "NOTICE"]) copyFileSync(join(root, name), join(folder, name));
