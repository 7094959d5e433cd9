import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { UserError } from "../../contract/user-error.ts";
import type { StackChange } from "../input/change.ts";
import { changeOfDocuments, withDocument } from "../input/document-change.ts";
import { changeOfPlan, type PlanFile } from "../input/plan-json.ts";
import { parseDocument, type SynthesizedDocument } from "../input/synthesized-document.ts";

/** What to review: plans, or the folders of two syntheses. */
export interface ReviewedFiles {
  /** Plan files; `NAME=FILE` names the stack, `-` is the standard input. */
  readonly plan: readonly string[];
  /** `cdktf.out` before the change. */
  readonly base?: string;
  /** `cdktf.out` after the change; with plans, the documents that add construct paths. */
  readonly head?: string;
}

/** Change and text of a plan file. */
export interface ReadPlan {
  readonly change: StackChange;
  readonly text: string;
}

/** Reads plan files, each once. */
export function readPlans({
  plan,
  head,
}: Pick<ReviewedFiles, "plan" | "head">): readonly ReadPlan[] {
  const documents = head === undefined ? new Map() : documentsIn(head, "--head");
  const plans = plan.map((argument) => {
    const input = planInput(argument);
    const change = { ...changeOfPlan(input), lockedProviders: lockedProviders(input.fileName) };
    const document = documents.get(change.stack);
    return {
      change: document === undefined ? change : withDocument(change, document),
      text: input.text,
    };
  });
  const stacks = plans.map(({ change }) => change.stack);
  const repeated = stacks.find((stack, index) => stacks.indexOf(stack) !== index);
  if (repeated !== undefined) {
    throw new UserError(
      `--plan: two plans have the stack '${repeated}': name them with --plan NAME=FILE`,
    );
  }
  return plans;
}

/** Reads the changes that the options of `clipstack review` select. */
export function readChanges({ plan, base, head }: ReviewedFiles): readonly StackChange[] {
  if (plan.length > 0) {
    if (base !== undefined)
      throw new UserError("--base requires --head and cannot be combined with --plan");
    return readPlans({ plan, head }).map(({ change }) => change);
  }
  if (base === undefined || head === undefined) {
    throw new UserError("requires --plan FILE, or --base FOLDER and --head FOLDER");
  }
  const before = documentsIn(base, "--base");
  const after = documentsIn(head, "--head");
  // a failed synthesis leaves an empty folder, which would be reviewed as the destruction of all stacks
  if (after.size === 0)
    throw new UserError(`--head must contain a synthesized stack, got '${head}'`);
  const names = [...new Set([...before.keys(), ...after.keys()])].sort();
  return names.map((name) => changeOfDocuments(name, before.get(name), after.get(name)));
}

/** Providers in the lock file beside a plan, or in the current folder. */
function lockedProviders(planFile: string): readonly string[] {
  const file = [dirname(planFile), "."]
    .map((folder) => join(folder, ".terraform.lock.hcl"))
    .find((it) => existsSync(it));
  if (file === undefined) return [];
  const text = readInput(file).text;
  return [...text.matchAll(/^provider "[^"/]+\/([^"]+)"/gm)].map(([, source]) => source ?? "");
}

/** Reads the plan of `NAME=FILE` or `FILE`. */
function planInput(argument: string) {
  const [, stack, file] = /^([\w.-]+)=(.+)$/s.exec(argument) ?? [];
  return file === undefined || existsSync(argument)
    ? readInput(argument)
    : { ...readInput(file), stack };
}

/** Reads a file or the standard input, as UTF-8 or UTF-16. */
export function readInput(file: string): PlanFile {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file === "-" ? 0 : file);
  } catch (error) {
    throw new UserError(`${file}: cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
  // PowerShell's `>` writes UTF-16
  const utf16 = bytes[0] === 0xff && bytes[1] === 0xfe;
  return {
    fileName: file === "-" ? "standard input" : file,
    text: new TextDecoder(utf16 ? "utf-16le" : "utf-8").decode(bytes),
  };
}

/** Reads the synthesized stacks of `cdktf.out` or of its folder `stacks`, by name. */
function documentsIn(folder: string, option: string): ReadonlyMap<string, SynthesizedDocument> {
  const path = resolve(folder);
  if (!existsSync(path) || !statSync(path).isDirectory()) {
    throw new UserError(`${option} must be the output folder of a synthesis, got '${folder}'`);
  }
  const stacks = basename(path) !== "stacks" && existsSync(join(path, "stacks")) ? "stacks" : "";
  const found = new Map<string, SynthesizedDocument>();
  for (const name of readdirSync(join(path, stacks)).sort()) {
    const file = join(path, stacks, name, "cdk.tf.json");
    if (!existsSync(file)) continue;
    const fileName = join(folder, stacks, name, "cdk.tf.json");
    found.set(name, parseDocument(readInput(file).text, fileName));
  }
  return found;
}
