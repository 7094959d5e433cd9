// Compiles files of the repository, together with the files and packages that they import.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../", import.meta.url));

const importPattern =
  /\bfrom\s+"([^"]+)"|^\s*import\s+"([^"]+)"|\bimport\(\s*"([^"]+)"\s*\)|\bnew URL\("([^"]+)", import\.meta\.url\)/gm;

/** Names of imports that stand for `cdktf` or its fork, as in the package of the constructs. */
export const { imports } = JSON.parse(readFileSync(join(root, "constructs/package.json"), "utf8"));

/** Whether the compiler writes a file, which is otherwise copied. */
export const isCompiled = (/** @type {string} */ file) => /\.[cm]?[jt]s$/.test(file);

/** Returns `entries`, all files that they need, and the npm packages that these import. */
export function dependenciesOf(/** @type {readonly string[]} */ entries) {
  const files = new Set(entries);
  const packages = new Set();
  for (const file of files) {
    if (!isCompiled(file)) continue;
    for (const match of readFileSync(file, "utf8").matchAll(importPattern)) {
      const specifier = match[1] ?? match[2] ?? match[3] ?? match[4];
      if (/^[./]+$/.test(specifier)) continue; // a folder that a module finds its files in
      if (specifier.startsWith(".")) files.add(fileAt(resolve(dirname(file), specifier)));
      else if (!specifier.startsWith("node:")) packages.add(packageOf(specifier));
    }
  }
  return { files: [...files], packages: [...packages].sort() };
}

/** Programs of threads are named without their extension. */
function fileAt(/** @type {string} */ path) {
  return existsSync(path) ? path : `${path}.ts`;
}

function packageOf(/** @type {string} */ specifier) {
  if (specifier.startsWith("#")) {
    const [start, rest = ""] = specifier.split("/", 2);
    const target = imports[specifier] ?? imports[`${start}/*`];
    return target.default.replace("*", rest);
  }
  return specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
}

/** Compiles files into the folder `dist`, in which they keep their paths. */
export function compile(
  /** @type {readonly string[]} */ files,
  /** @type {string} */ dist,
  { declaration = false } = {},
) {
  const config = join(dist, "tsconfig.json");
  const compilerOptions = {
    noEmit: false,
    // `npm run typecheck` checks the types
    noCheck: true,
    declaration,
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
    files: files.filter(isCompiled),
  };
  writeFileSync(config, JSON.stringify(text));
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, "-p", config], { stdio: "inherit" });
  rmSync(config);
}
