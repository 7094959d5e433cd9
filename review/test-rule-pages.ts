import { readFileSync } from "node:fs";
import { parse } from "yaml";
import type { ShippedEnvironment } from "../stacks/settings/environment-files.ts";
import type { Path, StackChange } from "./input/change.ts";

/** Difference between a passing and a failing stack. */
export type ExampleEdit = {
  /**
   * Path in the synthesized file, with the construct path in the stack as resource name:
   * `["resource", "docker_container", "embed/container", "read_only"]`. A dotted name stands for several steps.
   */
  readonly path: Path;
} & (
  | {
      /** Absent: the value is removed. */
      readonly failing?: unknown;
      /** Absent: the value of the stack. */
      readonly passing?: unknown;
    }
  | {
      /** Replaces `passingText`, or the reverse, in a text of the stack. */
      readonly failingText: string;
      readonly passingText: string;
    }
);

/** Shipped stack with edits. */
export interface Example {
  readonly stack: ShippedEnvironment;
  /** Settings that differ from the defaults, as YAML. */
  readonly settings?: string;
  readonly edits: readonly ExampleEdit[];
  /** First message for the failing example. */
  readonly message: string;
  readonly goals?: StackChange["goals"];
  /** Whether a resource was changed outside of Terraform. */
  readonly drift?: boolean;
}

/** Contents of `docs/rules/<id>.md` that are checked. */
export interface RulePage {
  /** `**warning** · Images · Pulled images are pinned by digest.` */
  readonly summary: string;
  /** Requirement in one line, the last part of the summary. */
  readonly title: string;
  readonly fix: string;
  readonly example: Example;
  /** Waiver of the example, as in the settings. */
  readonly waiver: { readonly rule: string; readonly reason: string; readonly expires: string };
}

/** Reads the page of a rule, whose example is tested. */
export function rulePage(id: string): RulePage {
  const text = readFileSync(`docs/rules/${id}.md`, "utf8");
  const [head = "", ...parts] = text.split(/^## /m);
  const [heading, summary = ""] = head.trim().split("\n\n");
  const title = summary.split(" · ").at(-1) ?? "";
  if (heading !== `# ${id}`) throw new Error(`docs/rules/${id}.md must have the title ${id}`);
  const section = new Map(
    parts.map((part) => {
      const [name = "", ...lines] = part.split("\n");
      return [name, lines.join("\n").trim()] as const;
    }),
  );
  const of = (name: string) => {
    const body = section.get(name);
    if (!body) throw new Error(`docs/rules/${id}.md must have a section ${name}`);
    return body;
  };
  of("Rationale");
  of("Examined");
  const [settings = ""] = blocksOf(of("Waiver"));
  const stack = /^# environments\/(.+)\.yaml$/m.exec(settings)?.[1] as ShippedEnvironment;
  const { waivers } = parse(settings).review;
  return {
    summary,
    title,
    fix: of("Fix"),
    example: exampleOf(of("Example"), stack),
    waiver: waivers[0],
  };
}

/** Contents of fenced blocks. */
function blocksOf(text: string): readonly string[] {
  return [...text.matchAll(/^```\w+\n(.*?)\n```$/gms)].map(([, body = ""]) => body);
}

function exampleOf(text: string, stack: ShippedEnvironment): Example {
  const [before = "", ...edits] = text.split(/^In /m);
  const yaml = /^With these settings/.test(before) ? (blocksOf(before)[0] ?? "") : "";
  const { review, ...settings } = (parse(yaml) ?? {}) as Record<string, unknown>;
  const { p99GoalMilliseconds } = (review ?? {}) as Record<string, number>;
  return {
    stack,
    settings: Object.keys(settings).length === 0 ? "" : JSON.stringify(settings),
    edits: edits.map(editOf),
    message: blocksOf(text.slice(text.indexOf("Finding:")))[0] ?? "",
    ...(p99GoalMilliseconds !== undefined && { goals: { p99Milliseconds: p99GoalMilliseconds } }),
    drift: text.includes("that reports a changed container"),
  };
}

function editOf(text: string): ExampleEdit {
  const [location = "", ...rest] = text.split("\n\n");
  const [failing, passing] = ["Fails", "Passes"].map((word) => {
    const start = rest.findIndex((line) => line.startsWith(word));
    const line = rest[start] ?? "";
    const [value = ""] = blocksOf(rest.slice(start + 1).join("\n\n"));
    return { line, value };
  });
  const path = pathOf([...location.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name));
  if (failing?.line === "Fails, with:") {
    return { path, failingText: failing.value, passingText: passing?.value ?? "" };
  }
  const jsonOf = ({ line, value }: { readonly line: string; readonly value: string }) =>
    line.includes("without it") ? undefined : JSON.parse(value);
  return {
    path,
    failing: jsonOf(failing!),
    ...(!passing?.line.includes("with its defaults") && { passing: jsonOf(passing!) }),
  };
}

/** Of `read_only`, `docker_container`, `single-gpu/embed/container`; or of a path and a stack. */
function pathOf(names: readonly string[]): Path {
  const [construct = "", type, path] = [...names].reverse();
  const isResource = construct.includes("/");
  if (!isResource) return [type ?? ""];
  const inStack = construct.split("/").slice(1).join("/");
  return ["resource", type ?? "", inStack, ...(path === undefined ? [] : [path])];
}
