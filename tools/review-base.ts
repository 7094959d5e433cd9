import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { execa } from "execa";
import { onInterrupt } from "../artefact/interrupt.ts";
import { runSynth } from "../cli/artefact.ts";
import { project } from "../cli/project.ts";
import { UserError } from "../contract/user-error.ts";
import { withChangedFiles } from "./changed-files.ts";

const help = `usage: npm run review -- [--base REVISION] [options of clipstack review]

Reviews what you have here against a revision of git, without a plan and without credentials: both are synthesized, the
revision in a worktree of its own that is removed afterwards.

  --base REVISION   what to compare with; default: origin/main
  --help            this text; 'npx clipstack review --help' has the other options

Examples:
  $ npm run review
  $ npm run review -- --base HEAD~1 --html --output review.html

Exit codes: those of 'clipstack review', and 2 for a revision that git does not know.`;

/** Folders that have packages of their own. */
const packageFolders = ["", "inference-image", "bench", "cli"];

/**
 * `npm run review`: the review of this checkout against a revision.
 *
 * @returns The exit code of `clipstack review`.
 */
export async function reviewAgainst(args: readonly string[]): Promise<number> {
  const { base, rest } = readArguments(args);
  if (base === undefined) {
    console.log(help);
    return 0;
  }
  const interrupt = onInterrupt();
  const run = { cwd: project, cancelSignal: interrupt.signal, reject: false } as const;
  const found = await execa("git", ["rev-parse", "--verify", "--quiet", `${base}^{commit}`], run);
  if (found.exitCode !== 0) {
    throw new UserError(`--base must be a revision that git knows here, got '${base}'`);
  }
  const folder = mkdtempSync(join(tmpdir(), "clipstack-review-"));
  const worktree = join(folder, "base");
  const [before, after] = [join(folder, "before"), join(folder, "after")];
  try {
    const added = await execa(
      "git",
      ["worktree", "add", "--quiet", "--detach", worktree, found.stdout],
      run,
    );
    if (added.exitCode !== 0) throw new Error(`git worktree failed: ${added.stderr}`);
    linkPackages(worktree);
    const synth = { environments: "own", signal: interrupt.signal };
    const old = await runSynth(before, { checkout: worktree, ...synth });
    if (old !== undefined) {
      // the fix of a broken revision must be reviewable
      console.error(`${base} has errors, and its invalid environments count as new:\n${old}`);
      if (!existsSync(join(before, "clipstack.json"))) emptyTree(before);
    }
    const mine = await runSynth(after, synth);
    if (mine !== undefined) throw new UserError(mine);
    noteChangedFiles(after, await changedFiles(found.stdout, interrupt.signal));
    const review = ["review", "--base", before, "--head", after, ...rest];
    const { exitCode } = await execa(
      process.execPath,
      [join(project, "cli/clipstack.mjs"), ...review],
      { ...run, stdio: "inherit" },
    );
    return exitCode ?? 1;
  } finally {
    await execa("git", ["worktree", "remove", "--force", worktree], {
      cwd: project,
      reject: false,
    });
    await rm(folder, { recursive: true, force: true });
    interrupt.remove();
  }
}

/** Ours, and what the review gets as it is. */
function readArguments(args: readonly string[]): {
  readonly base: string | undefined;
  readonly rest: readonly string[];
} {
  const { tokens } = parseArgs({
    args: [...args],
    strict: false,
    tokens: true,
    options: { base: { type: "string" }, help: { type: "boolean", short: "h" } },
  });
  const own = tokens.filter((token) => token.kind === "option");
  if (own.some(({ name }) => name === "help" || name === "h")) return { base: undefined, rest: [] };
  const bases = own.filter(({ name }) => name === "base");
  const [given] = bases.slice(-1);
  if (given !== undefined && (given.value === undefined || given.value === "")) {
    throw new UserError("--base must name a revision, got nothing");
  }
  const taken = new Set(
    bases.flatMap(({ index, inlineValue }) => (inlineValue ? [index] : [index, index + 1])),
  );
  return {
    base: given?.value ?? "origin/main",
    rest: args.filter((_, index) => !taken.has(index)),
  };
}

/** The packages of this checkout serve both: another lock file is told. */
function linkPackages(worktree: string): void {
  const lock = (folder: string) => readFileSync(join(folder, "package-lock.json"), "utf8");
  if (lock(project) !== lock(worktree)) {
    console.error(
      "package-lock.json differs: both sides are synthesized with the packages that are installed here",
    );
  }
  for (const folder of packageFolders) {
    const packages = join(project, folder, "node_modules");
    const place = join(worktree, folder, "node_modules");
    if (!existsSync(packages) || existsSync(place)) continue;
    mkdirSync(join(worktree, folder), { recursive: true });
    symlinkSync(packages, place, "dir");
  }
}

/** Files of this checkout that are not as in a revision, as git sees them. */
async function changedFiles(revision: string, signal: AbortSignal): Promise<readonly string[]> {
  const run = { cwd: project, cancelSignal: signal };
  const [edited, added] = await Promise.all([
    execa("git", ["diff", "--name-only", "-z", revision], run),
    execa("git", ["ls-files", "--others", "--exclude-standard", "-z"], run),
  ]);
  return [edited, added].flatMap(({ stdout }) => stdout.split("\0")).filter((it) => it !== "");
}

/** Images, charts and weights are made of files: those that changed are another image. */
function noteChangedFiles(outdir: string, files: readonly string[]): void {
  const stacks = join(outdir, "stacks");
  for (const name of readdirSync(stacks)) {
    const file = join(stacks, name, "cdk.tf.json");
    writeFileSync(file, withChangedFiles(readFileSync(file, "utf8"), files));
  }
}

/** What a synth of no environments would leave. */
function emptyTree(outdir: string): void {
  mkdirSync(join(outdir, "stacks"), { recursive: true });
  writeFileSync(join(outdir, "clipstack.json"), JSON.stringify({ schema: 1, stacks: {} }));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  try {
    process.exitCode = await reviewAgainst(process.argv.slice(2));
  } catch (error) {
    const detail = process.env.CLIPSTACK_DEBUG === undefined ? "message" : "stack";
    console.error(`review: ${error instanceof Error ? error[detail] : String(error)}`);
    // as Terraform has it 2 says that something changes
    const usage = process.argv.includes("--detailed-exitcode") ? 1 : 2;
    process.exitCode = error instanceof UserError ? usage : 1;
  }
}
