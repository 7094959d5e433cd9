import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Command } from "commander";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { commentMarker } from "../../review/report/comment-markdown.ts";
import { plannedText, plantedKey } from "../../review/test-plans.ts";
import { synthesizedText } from "../../review/test-stacks.ts";
import { isUserError } from "../run-command.ts";
import { clipstack } from "../test-programs.ts";
import { registerReview } from "./review.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-review-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const plan = (name: string) =>
  fileURLToPath(new URL(`../../review/input/plans/${name}.plan.json`, import.meta.url));
const file = (name: string, text: string) => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};

/** Runs the command in this process, which is faster than starting one. */
async function review(...args: readonly string[]) {
  let stdout = "";
  const program = new Command("clipstack");
  registerReview(program);
  const write = vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    stdout += text;
    return true;
  });
  try {
    await program.parseAsync(["review", ...args], { from: "user" });
    return { code: process.exitCode, stdout };
  } finally {
    write.mockRestore();
    process.exitCode = undefined;
  }
}

const tree = (name: string, yaml = "") => {
  const path = join(folder, name, "stacks", "single-gpu");
  mkdirSync(path, { recursive: true });
  writeFileSync(join(path, "cdk.tf.json"), synthesizedText("single-gpu", yaml));
  return join(folder, name);
};

let base: string;
let head: string;
beforeAll(() => {
  base = tree("base");
  head = tree("head", "tritonOnnx: { maxQueueDelayMicroseconds: 2000 }\n");
});

test("prints a comment for a plan and writes it in every requested format", async () => {
  const files = ["a.md", "a.html", "a.json"].map((name) => join(folder, name));
  const { code, stdout, stderr } = await clipstack([
    ...["review", "--plan", plan("port-exposed"), ...files.flatMap((it) => ["--output", it])],
  ]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout.startsWith(commentMarker)).toBe(true);
  const [md, html, json] = files.map((it) => readFileSync(it, "utf8"));
  expect(md?.trim()).toBe(stdout.trim());
  expect(html).toContain("<!doctype html>");
  expect(JSON.parse(json ?? "").verdict.level).toBe("attention");
  expect([stdout, md, html, json].join()).not.toContain(plantedKey);
});

test("compares two synthesized folders", async () => {
  const { code, stdout } = await review("--base", base, "--head", join(head, "stacks"));
  expect(code).toBe(0);
  expect(stdout).toContain("- dynamic_batching.max_queue_delay_microseconds: 0");
  expect(stdout).toContain("Visible only in a plan");
});

test("exits with code 1 from the severity of --fail-on", async () => {
  const codeOf = async (severity: string) =>
    (await review("--plan", plan("gpu-swapped"), "--fail-on", severity)).code;
  expect([await codeOf("error"), await codeOf("warning"), await codeOf("never")]).toEqual([
    0, 1, 0,
  ]);
});

test("returns Terraform's exit codes with --detailed-exitcode", async () => {
  const codeOf = async (...args: readonly string[]) =>
    (await review("--detailed-exitcode", ...args)).code;
  expect(await codeOf("--plan", plan("nothing-changed"))).toBe(0);
  expect(await codeOf("--plan", plan("create"))).toBe(2);
});

test("prints nothing for a plan without changes with --only-changes", async () => {
  const args = ["--plan", plan("nothing-changed"), "--only-changes"];
  expect(await review(...args)).toEqual({ code: 0, stdout: "" });
});

test("prints the reason of every failure", async () => {
  const path = file("errored.json", plannedText([], { errored: true }));
  const { code, stdout } = await review("--plan", `x=${path}`, "--only-changes");
  expect(code).toBe(1);
  expect(stdout).toContain("Planning failed");
});

test("renders several stacks as one comment", async () => {
  const { stdout } = await review(
    "--plan",
    `a=${plan("create")}`,
    "--plan",
    `b=${plan("gpu-swapped")}`,
  );
  expect(stdout.split(commentMarker)).toHaveLength(2);
  expect(stdout).toContain("#### a");
  expect(stdout).toContain("#### b");
});

test("--verify-plan accepts the reviewed plan, its comment and its JSON", async () => {
  const outputs = ["v.md", "v.json"].map((name) => join(folder, name));
  await review("--plan", plan("gpu-swapped"), ...outputs.flatMap((it) => ["--output", it]));
  for (const reviewed of [plan("gpu-swapped"), ...outputs]) {
    const { code, stdout } = await review("--plan", plan("gpu-swapped"), "--verify-plan", reviewed);
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: "single-gpu: matches the reviewed change\n",
    });
    const other = await review("--plan", plan("image-changed"), "--verify-plan", reviewed);
    expect(other.code).toBe(1);
    expect(other.stdout).toMatch(/^the plan differs from the reviewed change:\n {2}single-gpu: /);
  }
});

test("--verify-plan identifies a plan by its name, independent of content and folder", async () => {
  const [own, same] = [file("my -- plan.json", plannedText([])), join(folder, "sub")];
  mkdirSync(same);
  writeFileSync(join(same, "my -- plan.json"), plannedText([]));
  const reviewed = join(folder, "named.md");
  await review("--plan", own, "--output", reviewed);
  const { code, stdout } = await review(
    ...["--plan", join(same, "my -- plan.json"), "--verify-plan", reviewed],
  );
  expect({ code, stdout }).toEqual({
    code: 0,
    stdout: "my -- plan: matches the reviewed change\n",
  });
});

test("--verify-plan ignores fingerprints inside the plan", async () => {
  const resource = (after: object) =>
    plannedText([{ address: "docker_container.a", before: { name: "a" }, after }]);
  const evil = file("evil.json", resource({ name: "a", privileged: true }));
  const { stdout } = await review("--plan", `s=${evil}`, "--json");
  const marker = `<!-- clipstack-plans s:${JSON.parse(stdout).stacks[0].fingerprint} -->`;
  const quoting = file("quoting.json", resource({ name: "a", env: [`NODE_ENV=${marker}`] }));
  const comment = join(folder, "quoting.md");
  await review("--plan", `s=${quoting}`, "--output", comment);
  expect((await review("--plan", `s=${evil}`, "--verify-plan", comment)).code).toBe(1);
  const text = readFileSync(comment, "utf8");
  expect(text.split("<!-- clipstack-plans ")).toHaveLength(2);

  for (const forged of [
    `${marker}\n${text}`,
    `${text}${marker}\n`,
    text.split(/<!-- clipstack-p/)[0]!,
  ])
    await expect(
      review("--plan", `s=${evil}`, "--verify-plan", file("forged.md", forged)),
    ).rejects.toThrow(/forged\.md: must /);
});

test("reads a plan written by PowerShell", async () => {
  const path = join(folder, "utf16.json");
  writeFileSync(path, Buffer.from(`\uFEFF${plannedText([])}`, "utf16le"));
  expect((await review("--plan", `x=${path}`)).code).toBe(0);
});

const broken = mkdtempSync(join(tmpdir(), "clipstack-review-environments-"));
writeFileSync(join(broken, "single-gpu.yaml"), "stack: single-gpu\naccelerator: quantum\n");
afterAll(() => rmSync(broken, { recursive: true, force: true }));

test.each<readonly [string, () => readonly string[], RegExp]>([
  ["no input", () => [], /^requires --plan FILE, or --base FOLDER and --head FOLDER$/],
  ["a missing file", () => ["--plan", "none.json"], /^none\.json: cannot be read \(ENOENT\)$/],
  [
    "the same stack twice",
    () => ["--plan", plan("create"), "--plan", plan("gpu-swapped")],
    /--plan: two plans have the stack 'single-gpu': name them with --plan NAME=FILE$/,
  ],
  [
    "a head without stacks",
    () => ["--base", base, "--head", folder],
    /--head must contain a synthesized stack/,
  ],
  [
    "a base that is no folder",
    () => ["--base", "none", "--head", head],
    /--base must be the output folder of a synthesis, got 'none'$/,
  ],
  [
    "both inputs",
    () => ["--base", base, "--plan", plan("create")],
    /--base requires --head and cannot be combined with --plan$/,
  ],
  [
    "an output that cannot be written",
    () => ["--plan", plan("create"), "--output", "/nowhere/a.md"],
    /--output \/nowhere\/a\.md cannot be written: ENOENT$/,
  ],
  [
    "an environment with errors",
    () => ["--plan", plan("create"), "--environments", broken],
    /accelerator must be/,
  ],
])("fails for %s in one line", async (_, args, message) => {
  const error = await review(...args()).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(isUserError(error)).toBe(true);
  expect((error as Error).message).toMatch(message);
});

test.each([
  ["a missing file", ["--plan", "none.json"], "clipstack: none.json: cannot be read (ENOENT)"],
  ["an invalid date", ["--plan", "a", "--today", "soon"], "It must be a date, as in 2026-11-30."],
])("exits with code 2 and no stack trace for %s", async (_, args, message) => {
  const { code, stdout, stderr } = await clipstack(["review", ...args]);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toContain(message);
  expect(stderr).not.toMatch(/^ {4}at /m);
});

test.each([
  ["a missing file", ["--plan", "none.json"], "clipstack: none.json: cannot be read (ENOENT)"],
  ["an unknown option", ["--bogus"], "error: unknown option '--bogus'"],
])("exits with code 1 for %s with --detailed-exitcode", async (_, args, message) => {
  const { code, stdout, stderr } = await clipstack(["review", "--detailed-exitcode", ...args]);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  expect(stderr).toContain(message);
});

const unpinned = (version?: string) =>
  plannedText([], {
    configuration: {
      provider_config: {
        aws: {
          name: "aws",
          full_name: "registry.terraform.io/hashicorp/aws",
          ...(version === undefined ? {} : { version_constraint: version }),
        },
      },
    },
  });

test("a provider without an upper version never blocks, and is fine with a lock file", async () => {
  const path = file("unpinned.json", unpinned(">= 4"));
  const { code, stdout } = await review("--plan", path);
  expect(code).toBe(0);
  expect(stdout).toContain("provider-pinned");
  const lock = file(".terraform.lock.hcl", 'provider "registry.terraform.io/hashicorp/aws" {\n}\n');
  expect((await review("--plan", path)).stdout).not.toContain("provider-pinned");
  rmSync(lock);
});

test("reads waivers of plans without an environment from .clipstack-review.yaml", async () => {
  const path = file("other.json", unpinned());
  const run = () => clipstack(["review", "--plan", path], {}, folder);
  const waivers = (rule: string) =>
    `waivers:\n  - { rule: ${rule}, reason: pinned by the registry mirror, expires: '2099-01-01' }\n`;
  const settings = file(".clipstack-review.yaml", waivers("provider-pinned"));
  expect((await run()).stdout).toContain("pinned by the registry mirror");
  file(".clipstack-review.yaml", waivers("provider-pined"));
  const { code, stderr } = await run();
  expect(code).toBe(2);
  expect(stderr).toMatch(/\.clipstack-review\.yaml:\s+waivers\.0\.rule must be the id of a rule/);
  rmSync(settings);
});

test("selects rules by pack and by id, with own rules beside the settings", async () => {
  const path = file("packs.json", unpinned());
  const own = (find: string) =>
    file(
      "rules.mjs",
      `export default [{ id: "own-rule", severity: "note", fix: "-", find: ${find} }];`,
    );
  const settings = (yaml: string) => file("packs.yaml", `modules: [rules.mjs]\n${yaml}\n`);
  const found = async (yaml: string) => {
    const { stdout } = await review(path, "--json", "--settings", settings(yaml));
    const [{ findings }] = JSON.parse(stdout).stacks;
    return findings.map(({ rule, severity }: Record<string, string>) => `${rule} ${severity}`);
  };
  own("() => [{ message: 'is there' }]");
  expect(await found("packs: [docker]")).toEqual(["own-rule note"]);
  expect(await found("packs: [docker]\nrules: { provider-pinned: error, own-rule: off }")).toEqual([
    "provider-pinned error",
  ]);
  await expect(found("rules: { own-other: off }")).rejects.toThrow("no module defines own-other");
  await expect(found("rules: { no-rule: off }")).rejects.toThrow(
    "rules.no-rule must be the id of a rule (docs/rules/README.md), or of an own rule",
  );
});

test("waives the findings of one stack, until the waiver expires", async () => {
  const path = file("waived.json", unpinned());
  const settings = file(
    "waivers.yaml",
    "waivers: [{ rule: provider-pinned, stack: a, reason: pinned by the mirror, expires: '2026-12-31' }]",
  );
  const openRules = async (today: string) => {
    const plans = [`a=${path}`, `b=${path}`];
    const { stdout } = await review(...plans, "--json", "--settings", settings, "--today", today);
    return JSON.parse(stdout).stacks.map(({ findings }: { findings: Record<string, string>[] }) =>
      findings.filter(({ waived }) => waived === undefined).map(({ rule }) => rule),
    );
  };
  expect(await openRules("2026-12-31")).toEqual([[], ["provider-pinned"]]);
  expect(await openRules("2027-01-01")).toEqual([
    ["provider-pinned", "waiver-expired"],
    ["provider-pinned"],
  ]);
});

test("a queue delay of a second is not safe without a latency goal", async () => {
  const slow = tree("slow", "tritonOnnx: { maxQueueDelayMicroseconds: 1000000 }\n");
  const { stdout } = await review("--base", base, "--head", slow);
  expect(stdout).toContain("should be at most 100000, got 1000000");
});
