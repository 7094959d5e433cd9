import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { loadEnvironments } from "../../stacks/settings/environment-files.ts";
import { parseSettings, stackNames } from "../../stacks/settings/settings.ts";
import { writeStacks } from "../../stacks/write-stacks.ts";
import { clipstackProgram } from "../program.ts";

const newFolder = () => mkdtempSync(join(tmpdir(), "clipstack-init-"));

/** Runs `clipstack init`. */
async function init(...args: readonly string[]): Promise<void> {
  const program = await clipstackProgram(["init"]);
  const log = vi.spyOn(console, "log").mockReturnValue();
  const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  try {
    await program.parseAsync(["node", "clipstack", "init", ...args]);
  } finally {
    log.mockRestore();
    write.mockRestore();
  }
}

test("writes environments of every stack that synthesize side by side with the shipped ones", async () => {
  const environments = newFolder();
  const options = ["--environments", environments];
  for (const stack of stackNames) {
    await init(`staging-${stack}`, "--stack", stack, ...options);
    writeFileSync(join(environments, `other-${stack}.yaml`), `stack: ${stack}\n`);
  }
  const loaded = loadEnvironments(environments);
  expect(loaded.rejected).toEqual([]);
  for (const { name, stack, settings } of loaded.environments) {
    if (!name.startsWith("staging")) continue;
    const unique = {
      bulk: `namespace: ${name}`,
      kind: `cluster: { name: ${name} }`,
      kubernetes: `namespace: ${name}`,
    };
    const yaml = Object.entries(unique).find(([other]) => other === stack)?.[1] ?? "";
    expect(settings).toEqual(parseSettings(stack, name, yaml));
  }
  const outdir = join(newFolder(), "cdktf.out");
  const { rejected, summaries } = writeStacks(loaded.environments, { outdir });
  expect(rejected).toEqual([]);
  expect(summaries).toHaveLength(2 * stackNames.length);
});

test("names the JSON Schema in the first line, and explains each setting", async () => {
  const environments = newFolder();
  await init("staging", "--stack", "kind", "--environments", environments);
  const text = readFileSync(join(environments, "staging.yaml"), "utf8");
  expect(text).toMatch(
    /^# yaml-language-server: \$schema=(\.\.\/)+\S+\/stacks\/schemas\/kind\.schema\.json\n/,
  );
  expect(text).toContain("\nstack: kind\n");
  expect(text).toContain(
    "All values are defaults, except cluster.name, which must be unique: delete what you do not change.",
  );
  expect(text).toContain(
    "  # Name of the kind cluster; its kubeconfig context is `kind-<name>`.\n  name: staging\n",
  );
});

test("fails in one line if the file exists, and keeps it", async () => {
  const environments = newFolder();
  const file = join(environments, "staging.yaml");
  writeFileSync(file, "stack: kind\n");
  await expect(
    init("staging", "--stack", "single-gpu", "--environments", environments),
  ).rejects.toThrow(/staging\.yaml exists$/);
  expect(readFileSync(file, "utf8")).toBe("stack: kind\n");
});

test.each([
  [["Staging", "--stack", "kind"], /^name must be lower-case letters/],
  [
    ["staging", "--stack", "k8s"],
    /Allowed choices are single-gpu, multi-gpu, kind, kubernetes, bulk/,
  ],
  [["staging"], /required option '--stack <stack>' not specified/],
  [
    ["staging", "--stack", "kind", "--environments", "/nowhere"],
    /\/nowhere\/staging\.yaml cannot be written: ENOENT$/,
  ],
])("fails in one line on %j", async (args, message) => {
  await expect(init(...args)).rejects.toThrow(message);
});
