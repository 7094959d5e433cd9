import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { cp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { execa } from "execa";
import { onInterrupt } from "../artefact/interrupt.ts";
import { runSynth } from "../cli/shared/artefact.ts";
import { UserError } from "../contract/user-error.ts";
import { packageFolder as project } from "../model-tools/files/folders.ts";
import { withChangedFiles } from "./changed-files.ts";

const help = `usage: npm run review -- [--base REVISION] [--head FOLDER --head-revision REVISION] [options of clipstack review]

Reviews this checkout against a git revision, without a plan and without credentials: both are synthesized, the revision
in a temporary worktree.

  --base REVISION            revision to compare with; default: origin/main
  --head FOLDER              cdktf.out of another revision, reviewed in place of this checkout without running its code
  --head-revision REVISION   that revision, whose changed files are compared; required with --head
  --help                     this text; for the other options see 'npx clipstack review --help'

Examples:
  $ npm run review
  $ npm run review -- --base HEAD~1 --html --output review.html

Exit codes: those of 'clipstack review', and 2 for an unknown revision.`;

/** Folders with their own node_modules. */
const packageFolders = ["", "inference-image", "bench", "cli"];

/**
 * `npm run review`: reviews this checkout against a revision.
 *
 * @returns Exit code of `clipstack review`.
 */
export async function reviewAgainst(args: readonly string[]): Promise<number> {
  const { help: isHelp, rest, ...given } = readArguments(args);
  if (isHelp) {
    console.log(help);
    return 0;
  }
  if ((given.head === undefined) !== (given["head-revision"] === undefined)) {
    throw new UserError("--head and --head-revision require each other");
  }
  const interrupt = onInterrupt();
  const run = { cwd: project, cancelSignal: interrupt.signal, reject: false } as const;
  const commitOf = async (option: "base" | "head-revision", revision: string) => {
    const commit = `${revision}^{commit}`;
    const { exitCode, stdout } = await execa(
      "git",
      ["rev-parse", "--verify", "--quiet", commit],
      run,
    );
    if (exitCode === 0) return stdout;
    throw new UserError(`--${option} must be a revision of this repository, got '${revision}'`);
  };
  const base = given.base ?? "origin/main";
  const baseCommit = await commitOf("base", base);
  const headCommit =
    given["head-revision"] && (await commitOf("head-revision", given["head-revision"]));
  const folder = mkdtempSync(join(tmpdir(), "clipstack-review-"));
  const worktree = join(folder, "base");
  const [before, after] = [join(folder, "before"), join(folder, "after")];
  try {
    const added = await execa(
      "git",
      ["worktree", "add", "--quiet", "--detach", worktree, baseCommit],
      run,
    );
    if (added.exitCode !== 0) throw new Error(`git worktree failed: ${added.stderr}`);
    linkPackages(worktree);
    const synth = { environments: "own", signal: interrupt.signal };
    const baseProblem = await runSynth(before, { checkout: worktree, ...synth });
    if (baseProblem !== undefined) {
      // the fix of a broken revision must be reviewable
      console.error(
        `${base} has errors, and its invalid environments count as new:\n${baseProblem}`,
      );
      if (!existsSync(join(before, "clipstack.json"))) writeEmptyTree(before);
    }
    if (given.head !== undefined) {
      // a missing folder is reported by the review, also on GitHub; links of an untrusted folder are not written through
      if (existsSync(given.head)) {
        await cp(given.head, after, { recursive: true, dereference: true });
      }
    } else {
      const problem = await runSynth(after, synth);
      if (problem !== undefined) throw new UserError(problem);
    }
    markChangedFiles(after, await changedFiles(baseCommit, headCommit, interrupt.signal));
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

const ownOptions = ["base", "head", "head-revision"] as const;

/** Separates the own options from those that are passed to `clipstack review`. */
function readArguments(args: readonly string[]) {
  const { tokens } = parseArgs({
    args: [...args],
    strict: false,
    tokens: true,
    options: Object.fromEntries(ownOptions.map((name) => [name, { type: "string" }])),
  });
  const options = tokens.filter((token) => token.kind === "option");
  const own = options.filter(({ name }) => ownOptions.some((it) => it === name));
  const empty = own.find(({ value }) => !value);
  if (empty !== undefined) throw new UserError(`--${empty.name} must have a value, got none`);
  const consumed = new Set(
    own.flatMap(({ index, inlineValue }) => (inlineValue ? [index] : [index, index + 1])),
  );
  const values: Readonly<Partial<Record<(typeof ownOptions)[number], string>>> = Object.fromEntries(
    own.map(({ name, value }) => [name, value]),
  );
  return {
    ...values,
    help: options.some(({ name }) => name === "help" || name === "h"),
    rest: args.filter((_, index) => !consumed.has(index)),
  };
}

/** Links the packages of this checkout into the worktree; prints a note if the lock files differ. */
function linkPackages(worktree: string): void {
  const lock = (folder: string) => readFileSync(join(folder, "package-lock.json"), "utf8");
  if (lock(project) !== lock(worktree)) {
    console.error(
      "package-lock.json differs: both revisions are synthesized with the packages installed here",
    );
  }
  for (const folder of packageFolders) {
    const packages = join(project, folder, "node_modules");
    const link = join(worktree, folder, "node_modules");
    if (!existsSync(packages) || existsSync(link)) continue;
    mkdirSync(join(worktree, folder), { recursive: true });
    symlinkSync(packages, link, "dir");
  }
}

/** @param head - Commit; absent: the files of this checkout. */
async function changedFiles(
  base: string,
  head: string | undefined,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const run = { cwd: project, cancelSignal: signal };
  const listed = [["diff", "--name-only", "--no-renames", "-z", base, ...(head ? [head] : [])]];
  if (head === undefined) listed.push(["ls-files", "--others", "--exclude-standard", "-z"]);
  const found = await Promise.all(listed.map((args) => execa("git", args, run)));
  return found.flatMap(({ stdout }) => stdout.split("\0")).filter((it) => it !== "");
}

/** Records the changed files in the synthesized stacks, because images, charts and weights are built from files. */
function markChangedFiles(outdir: string, files: readonly string[]): void {
  const stacks = join(outdir, "stacks");
  for (const name of existsSync(stacks) ? readdirSync(stacks) : []) {
    const file = join(stacks, name, "cdk.tf.json");
    writeFileSync(file, withChangedFiles(readFileSync(file, "utf8"), files));
  }
}

function writeEmptyTree(outdir: string): void {
  mkdirSync(join(outdir, "stacks"), { recursive: true });
  writeFileSync(join(outdir, "clipstack.json"), JSON.stringify({ schema: 1, stacks: {} }));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  try {
    process.exitCode = await reviewAgainst(process.argv.slice(2));
  } catch (error) {
    const detail = process.env.CLIPSTACK_DEBUG === undefined ? "message" : "stack";
    console.error(`review: ${error instanceof Error ? error[detail] : String(error)}`);
    // with --detailed-exitcode, 2 means changes, as in Terraform
    const usage = process.argv.includes("--detailed-exitcode") ? 1 : 2;
    process.exitCode = error instanceof UserError ? usage : 1;
  }
}
