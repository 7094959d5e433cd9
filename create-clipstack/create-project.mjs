import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";

/** Environment file with which a project starts, by stack. */
export const environmentFiles = {
  "single-gpu": "single-gpu.yaml",
  "multi-gpu": "multi-gpu-4x.yaml",
  kind: "kind-local.yaml",
  kubernetes: "k8s-gpu.yaml",
};

/** Files with other names in the template: npm does not pack the first two. */
const renamedFiles = { gitignore: ".gitignore", npmrc: ".npmrc", readme: "README.md" };

const here = import.meta.dirname;

/**
 * Error message for an invalid choice; undefined if a project can be created.
 *
 * @param {{ folder: string | undefined, stack: string, environment: string }} choice
 */
export function problemOf({ folder, stack, environment }) {
  if (folder === undefined)
    return "the folder must be named: npm create clipstack@latest my-inference";
  if (!Object.hasOwn(environmentFiles, stack)) {
    return `--stack must be one of ${Object.keys(environmentFiles).join(", ")}, got '${stack}'`;
  }
  if (!/^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$/.test(environment)) {
    return `--environment must be lower-case letters, digits and '-', start with a letter and have at most 40 characters, got '${environment}'`;
  }
  if (existsSync(folder) && readdirSync(folder).length > 0) {
    return `the folder must be new or empty, got '${folder}'`;
  }
}

/**
 * Writes a project with one environment.
 *
 * @param {{ folder: string, stack: keyof typeof environmentFiles, environment: string, version: string }} choice
 */
export function createProject({ folder, stack, environment, version }) {
  const values = {
    name: basename(resolve(folder))
      .toLowerCase()
      .replaceAll(/[^a-z0-9-]+/g, "-"),
    environment,
    version,
    projectId: randomUUID(),
  };
  const template = join(here, "template");
  for (const entry of readdirSync(template, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name).slice(template.length + 1);
    const text = readFileSync(join(template, path), "utf8");
    const filled = text.replaceAll(/\{\{(\w+)\}\}/g, (_, key) => values[key]);
    write(join(folder, renamedFiles[path] ?? path), filled);
  }
  write(join(folder, "environments", `${environment}.yaml`), environmentText(stack));
}

/** Text of a shipped environment, with the paths of an installed package. */
function environmentText(/** @type {keyof typeof environmentFiles} */ stack) {
  const packed = join(here, "environments");
  const environments = existsSync(packed) ? packed : join(here, "../environments");
  return readFileSync(join(environments, environmentFiles[stack]), "utf8")
    .replace("$schema=../", "$schema=../node_modules/clipstack/")
    .replaceAll("docs/", "node_modules/clipstack/docs/");
}

function write(/** @type {string} */ file, /** @type {string} */ text) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
