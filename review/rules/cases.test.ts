import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import type { Example, ExampleEdit } from "../test-rule-pages.ts";
import { changeOf, synthesizedText, withPlanBlocks } from "../test-stacks.ts";
import { rules } from "./rules.ts";

/** Case of a rule in addition to the example of its page. */
interface Case extends Pick<Example, "stack" | "settings"> {
  readonly rule: string;
  readonly situation: string;
  /** First message for the failing edits; absent if they must pass too. */
  readonly message?: string;
  readonly edits?: readonly (Readonly<Record<"at", string>> & Omit<ExampleEdit, "path">)[];
  /** Type and construct of a resource that moves to another address. */
  readonly renamed?: string;
}

const cases: readonly Case[] = parse(readFileSync("review/rules/cases.yaml", "utf8"));

/** `docker_container embed/container healthcheck.test`, or a path in the synthesized file. */
function pathOf(at: string): ExampleEdit["path"] {
  return at.includes(" ") ? ["resource", ...at.split(" ")] : [at];
}

/** Edits that move a resource to another address. */
function renamedEdits(stack: Example["stack"], renamed: string): Example["edits"] {
  const [type = "", construct = ""] = renamed.split(" ");
  const { resource } = JSON.parse(synthesizedText(stack)) as {
    readonly resource: Record<string, Record<string, { "//": { metadata: { path: string } } }>>;
  };
  const body = Object.values(resource[type] ?? {}).find(
    (it) => it["//"].metadata.path === `${stack}/${construct}`,
  );
  return [
    { path: ["resource", type, construct], failing: undefined },
    { path: ["resource", type, "renamed"], failing: body, passing: undefined },
  ];
}

describe.each(cases.map((one) => [`${one.rule}: ${one.situation}`, one] as const))(
  "%s",
  (_, { message, rule: id, stack, settings, edits = [], renamed }) => {
    const rule = rules.find((it) => it.id === id)!;
    const example = {
      stack,
      settings,
      edits:
        renamed === undefined
          ? edits.map(({ at, ...edit }) => ({ ...edit, path: pathOf(at) }) as ExampleEdit)
          : renamedEdits(stack, renamed),
    };

    test(message === undefined ? "passes" : "is a violation", () => {
      const change = changeOf(example, "failing");
      expect(rule.find(change).at(0)?.message).toBe(message);
      expect(rule.find(withPlanBlocks(change))).toEqual(rule.find(change));
    });

    test("passes with the permitted value", () => {
      const change = changeOf(example, "passing");
      expect(rule.find(change)).toEqual([]);
      expect(rule.find(withPlanBlocks(change))).toEqual([]);
    });
  },
);
