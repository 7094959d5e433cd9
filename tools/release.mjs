// Steps of a release, run by .github/workflows/release.yml and by `npm run lab -- release-rehearsal`.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { root } from "./compile-files.mjs";

const usage = `usage: node tools/release.mjs version X.Y.Z        sets the version of every package, image and chart, and dates CHANGELOG.md
       node tools/release.mjs pack FOLDER [--registry R] [--image KIND=DIGEST]…   packs the published packages
       node tools/release.mjs notes                 prints the newest section of CHANGELOG.md`;

/** Workspaces that are published, and the folders that are packed. */
const published = {
  cli: "cli/dist",
  review: "review/dist",
  client: "client",
  constructs: "constructs",
  emulator: "emulator",
  "create-clipstack": "create-clipstack",
};

/** Other files with the version. */
const versionedFiles = [
  "action.yml",
  "docs/ci/gitlab-plan-review.yml",
  "docs/ci/github-plan-review.yml",
  "docs/ci/github-drift.yml",
  "docker-bake.hcl",
  "helm/clipstack/Chart.yaml",
  "inference-image/Dockerfile",
  "inference-image/Dockerfile.gpu",
  "model_repository/image/Dockerfile.all-in-one",
  "model_repository/image/Dockerfile.triton",
];

const read = (/** @type {string} */ path) => readFileSync(join(root, path), "utf8");
const npm = (/** @type {string[]} */ ...args) =>
  execFileSync("npm", args, { cwd: root, stdio: ["ignore", process.stderr, "inherit"] });

/** @type {Record<string, (args: string[]) => void>} */
const commands = { version: setVersion, pack, notes };

/** Sets the version in every file that has it, and dates the section `Unreleased` of the changelog. */
function setVersion(/** @type {string[]} */ [next = ""]) {
  if (!/^\d+\.\d+\.\d+(-[0-9a-z.]+)?$/.test(next)) fail(`version must be X.Y.Z, got '${next}'`);
  const { version } = JSON.parse(read("package.json"));
  npm("version", next, "--workspaces", "--include-workspace-root", "--no-git-tag-version");
  for (const path of versionedFiles) {
    const text = read(path);
    if (!text.includes(version)) fail(`${path} must contain the version ${version}`);
    writeFileSync(join(root, path), text.replaceAll(version, next));
  }
  const date = new Date().toISOString().slice(0, 10);
  const changelog = read("CHANGELOG.md");
  const heading = "## Unreleased\n";
  if (!changelog.includes(heading)) fail("CHANGELOG.md must have a section '## Unreleased'");
  writeFileSync(
    join(root, "CHANGELOG.md"),
    changelog.replace(heading, `${heading}\n## ${next} - ${date}\n`),
  );
  console.error("next: npm run render, npm run check, commit, and push the tag");
}

/** Packs the published packages; the packed command line pulls the images with the given digests. */
function pack(/** @type {string[]} */ args) {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: { registry: { type: "string" }, image: { type: "string", multiple: true } },
  });
  const [folder] = positionals;
  if (folder === undefined) return fail("the folder for the packages must be named");
  const release = JSON.parse(read("contract/release.json"));
  const digests = Object.fromEntries((values.image ?? []).map(digestOf));
  mkdirSync(folder, { recursive: true });
  // .npmrc turns off the scripts of npm pack
  npm("run", "build", ...Object.keys(published).flatMap((name) => ["-w", name]));
  writeFileSync(
    join(root, "cli/dist/contract/release.json"),
    `${JSON.stringify({ registry: values.registry ?? release.registry, digests }, null, 2)}\n`,
  );
  const packages = Object.values(published).map((packed) => `./${packed}`);
  npm("pack", ...packages, "--pack-destination", resolve(folder));
}

function digestOf(/** @type {string} */ text) {
  const match = /^(embed-cpu|embed-gpu)=(sha256:[0-9a-f]{64})$/.exec(text);
  if (match === null)
    return fail(`--image must be embed-cpu=sha256:… or embed-gpu=sha256:…, got '${text}'`);
  return match.slice(1);
}

/** Prints the section of the newest version, for the release page. */
function notes() {
  const [, section = ""] = /\n## \d[^\n]*\n([\s\S]*?)(?=\n## |$)/.exec(read("CHANGELOG.md")) ?? [];
  if (section.trim() === "") fail("CHANGELOG.md must have a section of a version");
  console.log(section.trim());
}

/** @returns {never} */
function fail(/** @type {string} */ message) {
  console.error(`release: ${message}`);
  process.exit(2);
}

const [name = "", ...args] = process.argv.slice(2);
const command = commands[name];
if (command === undefined) fail(`the step must be version, pack or notes, got '${name}'\n${usage}`);
command(args);
