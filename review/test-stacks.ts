import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { App } from "../constructs/terraform/cdktf.ts";
import { createStack } from "../stacks/create-stack.ts";
import { type ShippedEnvironment, shippedStacks } from "../stacks/settings/environment-files.ts";
import { type EnvironmentSettings, parseSettings } from "../stacks/settings/settings.ts";
import { cached } from "./facts/cached.ts";
import type { StackChange, Values } from "./input/change.ts";
import { changeOfDocuments } from "./input/document-change.ts";
import { parseDocument } from "./input/synthesized-document.ts";
import { isObject } from "./input/value-paths.ts";
import type { Example, ExampleEdit } from "./test-rule-pages.ts";

/** Stack of an example and its edits. */
export type Change = Omit<Example, "message">;

type Json = Record<string | number, unknown>;

const synthesized = new Map<string, string>();

/** The synthesized file of a stack, as text. */
export function synthesizedText(environment: ShippedEnvironment, yaml = ""): string {
  const key = `${environment}\n${yaml}`;
  const known = synthesized.get(key);
  if (known !== undefined) return known;
  // `Testing` omits construct paths
  const outdir = mkdtempSync(join(tmpdir(), "clipstack-review-"));
  const app = new App({ outdir });
  const stack = shippedStacks[environment];
  const settings = parseSettings(stack, "test", yaml);
  createStack(app, { name: environment, stack, settings } as EnvironmentSettings);
  app.synth();
  const text = readFileSync(join(outdir, "stacks", environment, "cdk.tf.json"), "utf8");
  synthesized.set(key, text);
  return text;
}

export function changeOf(example: Change, to: "failing" | "passing"): StackChange {
  return (to === "failing" ? failing : passing)(example);
}

const failing = cached((example: Change) => changeTo(example, "failing"));
const passing = cached((example: Change) => changeTo(example, "passing"));

function changeTo(example: Change, to: "failing" | "passing"): StackChange {
  const { stack, settings, edits, goals, drift } = example;
  const edited = (side: "failing" | "passing") => {
    const document = JSON.parse(synthesizedText(stack, settings)) as Json;
    for (const edit of edits) apply(document, stack, edit, side);
    return parseDocument(JSON.stringify(document), stack);
  };
  const change = changeOfDocuments(stack, edited("passing"), edited(to));
  const changed = change.resources.find(({ type }) => type === "docker_container");
  return {
    ...change,
    ...(goals !== undefined && { goals }),
    ...(drift && to === "failing" && changed !== undefined && { drift: [changed] }),
  };
}

function apply(document: Json, stack: string, edit: ExampleEdit, side: "failing" | "passing") {
  const path = stepsOf(document, withResourceName(document, stack, edit.path));
  const last = path.at(-1)!;
  const holder = path.slice(0, -1).reduce<Json>((inner, step) => inner[step] as Json, document);
  if ("failingText" in edit) {
    const { passingText, failingText } = edit;
    const text = String(holder[last]);
    if (!text.includes(passingText))
      throw new Error(`${path.join(".")} must contain '${passingText}'`);
    holder[last] = text.replace(passingText, side === "failing" ? failingText : passingText);
  } else if (side === "failing" || "passing" in edit) {
    const value = edit[side];
    if (value !== undefined) holder[last] = value;
    else if (Array.isArray(holder)) holder.splice(Number(last), 1);
    else delete holder[last];
  }
}

/** Replaces the construct path with the name of the resource. */
function withResourceName(
  document: Json,
  stack: string,
  path: ExampleEdit["path"],
): ExampleEdit["path"] {
  const [head, type, construct, ...rest] = path;
  if (head !== "resource" || type === undefined || construct === undefined) return path;
  const resources = (document.resource as Record<string, Json>)[type] ?? {};
  const found = Object.entries(resources).find(([, body]) => {
    const { metadata } = (body as { "//"?: { metadata: { path: string } } })["//"] ?? {};
    return metadata?.path === `${stack}/${construct}`;
  });
  return [head, type, found?.[0] ?? construct, ...rest];
}

/** Splits dotted names into the steps that exist in the document. */
function stepsOf(value: unknown, [step, ...rest]: ExampleEdit["path"]): ExampleEdit["path"] {
  if (step === undefined) return [];
  const names = String(step).split(".");
  const own = typeof value === "object" && value !== null ? (value as Json) : {};
  for (let count = names.length; count > 0; count -= 1) {
    const name = names.slice(0, count).join(".");
    if (!Object.hasOwn(own, name)) continue;
    const below = names.slice(count).join(".");
    return [name, ...stepsOf(own[name], below === "" ? rest : [below, ...rest])];
  }
  return [step, ...stepsOf(undefined, rest)];
}

/** Single blocks, which are lists in a plan. */
const singleBlocks = new Set(
  [
    "metadata spec template strategy rolling_update scale_target_ref resource target behavior",
    "security_context seccomp_profile capabilities healthcheck build resources lifecycle pre_stop exec",
    "startup_probe readiness_probe liveness_probe http_get host_path empty_dir",
  ].flatMap((words) => words.split(" ")),
);

/** Converts single blocks to lists, as in a plan. */
export function withPlanBlocks(change: StackChange): StackChange {
  const convert = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(convert);
    if (!isObject(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => {
        const isBlock = singleBlocks.has(key) || (isObject(inner) && "match_labels" in inner);
        return [key, isBlock && isObject(inner) ? [convert(inner)] : convert(inner)];
      }),
    );
  };
  const values = (of: Values | undefined) => (of === undefined ? of : (convert(of) as Values));
  return {
    ...change,
    resources: change.resources.map(({ before, after, ...resource }) => ({
      ...resource,
      before: values(before),
      after: values(after),
    })),
  };
}
