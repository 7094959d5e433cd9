import { execFileSync, spawnSync } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { packageFolder as project } from "../model-tools/files/folders.ts";

const why = existsSync(join(project, ".git")) ? "" : " (skipped: not a git clone)";
const settings = "environments/single-gpu.yaml";

/** Clone of this repository with uncommitted changes and the installed packages. */
let clone: string;

function git(...args: readonly string[]): string {
  const author = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
  return execFileSync("git", [...author, ...args], { cwd: clone, encoding: "utf8" }).trim();
}

function review(...args: readonly string[]) {
  const tsx = join(clone, "node_modules/.bin/tsx");
  const run = spawnSync(tsx, ["tools/review-base.ts", ...args], {
    cwd: clone,
    encoding: "utf8",
    timeout: 240_000,
  });
  return { code: run.status, out: run.stdout, err: run.stderr };
}

beforeAll(() => {
  if (why !== "") return;
  clone = join(mkdtempSync(join(tmpdir(), "clipstack-clone-")), "clone");
  execFileSync("git", ["clone", "--quiet", "--shared", project, clone]);
  const edited = execFileSync("git", ["diff", "--binary", "HEAD"], { cwd: project });
  if (edited.length > 0) execFileSync("git", ["apply"], { cwd: clone, input: edited });
  if (edited.length > 0) git("commit", "--quiet", "--all", "--message", "uncommitted changes");
  for (const folder of ["", "inference-image", "bench", "cli"]) {
    const packages = join(project, folder, "node_modules");
    if (existsSync(packages)) symlinkSync(packages, join(clone, folder, "node_modules"), "dir");
  }
}, 120_000);

test.skipIf(why !== "")(
  `reviews uncommitted changes against a revision, and leaves no worktree${why}`,
  () => {
    appendFileSync(join(clone, settings), "  maxQueueDelayMicroseconds: 9000\n");
    const { code, out } = review("--base", "HEAD", "--json");
    expect(code).toBe(0);
    expect(out).toContain("max_queue_delay_microseconds");
    expect(out).not.toContain(tmpdir());
    expect(git("worktree", "list").split("\n")).toHaveLength(1);
  },
  300_000,
);

test.skipIf(why !== "")(
  `reviews an environment as new if it is invalid in the revision${why}`,
  () => {
    git("checkout", "--quiet", "--", settings);
    appendFileSync(join(clone, settings), "nonsense: 1\n");
    git("commit", "--quiet", "--all", "--message", "break it");
    git("revert", "--no-edit", "HEAD");
    const { code, err } = review("--base", "HEAD~1");
    expect(err).toContain("HEAD~1 has errors, and its invalid environments count as new:");
    expect(err).toContain("unknown key 'nonsense'");
    expect(code).toBe(0);
  },
  300_000,
);

test.skipIf(why !== "")(
  `reviews a synthesized revision with the reviewer of this checkout${why}`,
  () => {
    git("checkout", "--quiet", "-b", "change");
    appendFileSync(join(clone, settings), "  maxQueueDelayMicroseconds: 9000\n");
    appendFileSync(join(clone, "inference-image/Dockerfile"), "# changed\n");
    writeFileSync(join(clone, "cli/commands/review.ts"), "process.exit(0);\n");
    git("commit", "--quiet", "--all", "--message", "change");
    execFileSync("npm", ["run", "synth"], { cwd: clone, stdio: "ignore" });
    git("checkout", "--quiet", "-");
    const { code, out, err } = review(
      ...["--base", "HEAD", "--head", "cdktf.out", "--head-revision", "change", "--json"],
    );
    expect(code, err).toBe(0);
    expect(out).toContain("max_queue_delay_microseconds");
    const address = "docker_image.host_embed-cpu-image_";
    expect(out).toMatch(new RegExp(`"address": "${address}\\w+",[^}]*"action": "replace"`));
  },
  300_000,
);

test.skipIf(why !== "")(`fails on an unknown revision${why}`, () => {
  expect(review("--base", "no-such-branch")).toEqual({
    code: 2,
    out: "",
    err: "review: --base must be a revision of this repository, got 'no-such-branch'\n",
  });
});

test.skipIf(why !== "")(
  `fails on invalid uncommitted settings${why}`,
  () => {
    git("checkout", "--quiet", "--", ".");
    writeFileSync(join(clone, settings), "stack: single-gpu\naccelerator: none\n");
    const { code, err } = review("--base", "HEAD");
    expect(code).toBe(2);
    expect(err).toContain("accelerator must be one of gpu, cpu, got 'none'");
  },
  300_000,
);
