#!/usr/bin/env node
// `npm create clipstack@latest my-inference`
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline/promises";
import { parseArgs } from "node:util";
import { createProject, environmentFiles, problemOf } from "./create-project.mjs";

const usage = `usage: npm create clipstack@latest FOLDER -- [options]

Writes a project that deploys GPU inference for embeddings, and installs its packages.

  --stack STACK          ${Object.keys(environmentFiles).join(", ")}; default: asks, or single-gpu without a terminal
  --environment NAME     name of its first environment; default: that of the stack
  --no-install           does not run npm install

Exit codes: 0 success, 1 npm install failed, 2 wrong usage.`;

function fail(/** @type {string} */ message) {
  console.error(`create-clipstack: ${message}`);
  process.exit(2);
}

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        stack: { type: "string" },
        environment: { type: "string" },
        "no-install": { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    });
  } catch (error) {
    return fail(/** @type {Error} */ (error).message);
  }
}

async function askStack() {
  if (!process.stdin.isTTY) return "single-gpu";
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const answer = await terminal.question(
    `Stack, one of ${Object.keys(environmentFiles).join(", ")} [single-gpu]: `,
  );
  terminal.close();
  return answer.trim() || "single-gpu";
}

const { values, positionals } = readArguments();
if (values.help) {
  console.log(usage);
  process.exit(0);
}
if (positionals.length > 1) fail(`one folder must be named, got '${positionals.join(" ")}'`);
const [folder] = positionals;
const stack = values.stack ?? (folder === undefined ? "single-gpu" : await askStack());
const environment = values.environment ?? environmentFiles[stack]?.replace(".yaml", "") ?? stack;
const problem = problemOf({ folder, stack, environment });
if (problem !== undefined) fail(problem);

const manifest = readFileSync(join(import.meta.dirname, "package.json"), "utf8");
createProject({ folder, stack, environment, version: JSON.parse(manifest).version });
if (!values["no-install"]) {
  const npm = process.platform === "win32" ? "npm.cmd" : "npm";
  try {
    execFileSync(npm, ["install", "--no-audit", "--no-fund"], { cwd: folder, stdio: "inherit" });
  } catch {
    console.error(`create-clipstack: npm install failed in ${folder}`);
    process.exit(1);
  }
}
console.log(`
${folder} is written. Next:
  cd ${folder}${values["no-install"] ? "\n  npm install" : ""}
  npx clipstack verify ${environment}    verifies it here: no GPU, Docker or Terraform
  npx cdktf deploy ${environment}        deploys it; edit environments/${environment}.yaml first`);
