// Compiles the published package in the current folder to dist/, together with the files of the other packages that its index.ts
// needs. Run it as `npm run build -w client`; `npm pack` runs it too.
import { copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { compile, dependenciesOf, isCompiled, root } from "./compile-files.mjs";

const folder = process.cwd();
const dist = join(folder, "dist");

const { dependencies = {}, peerDependencies = {} } = JSON.parse(
  readFileSync(join(folder, "package.json"), "utf8"),
);
const { files, packages } = dependenciesOf([join(folder, "index.ts")]);
const undeclared = packages.filter((name) => !(name in dependencies || name in peerDependencies));
if (undeclared.length > 0) {
  console.error(
    `package.json must declare the imported packages, missing ${undeclared.join(", ")}`,
  );
  process.exit(1);
}

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
compile(files, dist, { declaration: true });
for (const file of files) {
  const output = join(dist, relative(root, file));
  if (!isCompiled(file)) cpSync(file, output, { recursive: true });
  if (!file.endsWith(".ts")) continue;
  // the compiler rewrites imports in JavaScript, but not in declarations
  const declarations = output.replace(/\.ts$/, ".d.ts");
  const text = readFileSync(declarations, "utf8");
  writeFileSync(declarations, text.replaceAll(/(\bfrom |\bimport\()"(\.[^"]+)\.ts"/g, '$1"$2.js"'));
}
for (const name of ["LICENSE", "NOTICE"]) copyFileSync(join(root, name), join(folder, name));
