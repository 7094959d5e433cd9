// Build stage of the images: copies only the packages that the compiled server needs.
// usage: node runtime-packages.mjs NODE_MODULES TARGET
// Only packages with native libraries and their dependencies are not compiled into the server. Files of other platforms are
// omitted, because onnxruntime-node contains the libraries of five platforms.
import { cpSync, existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative, resolve } from "node:path";

/** Packages that the compiled server imports. */
const packages = ["onnxruntime-node", "sharp"];

/** Packages that only onnxruntime-node's install script imports. */
const onlyToInstall = new Set(["adm-zip", "global-agent"]);

const [source, target] = process.argv.slice(2).map((path) => resolve(path));
const platform = `${process.platform}/${process.arch}`;
const copied = new Set();
for (const name of packages) copy(name);

// detect missing libraries at build time instead of at the first request
const require = createRequire(join(target, "..", "main.js"));
for (const name of packages) require(name);

function copy(name) {
  const from = join(source, name);
  if (copied.has(name) || onlyToInstall.has(name) || !existsSync(from)) return;
  copied.add(name);
  cpSync(from, join(target, name), {
    recursive: true,
    filter: (path) => isNeeded(relative(from, path)),
  });
  const { dependencies, optionalDependencies } = JSON.parse(
    readFileSync(join(from, "package.json"), "utf8"),
  );
  // npm installed the optional ones of this platform and no others
  for (const other of Object.keys({ ...dependencies, ...optionalDependencies })) {
    if (!existsSync(join(from, "node_modules", other))) copy(other);
  }
}

function isNeeded(path) {
  const library = /^bin\/napi-v\d+\/(.+)/.exec(path)?.[1];
  if (library !== undefined) {
    return `${platform}/`.startsWith(`${library}/`) || library.startsWith(`${platform}/`);
  }
  return !/^(script|install)$|\.([cm]?ts|map|cc|h|gyp)$/.test(path);
}
