import type { z } from "zod";
import { valueAt } from "../../contract/issue-lines.ts";

/** Settings without their invalid values, so that the checks of the stack run in the same pass as the schema. */
export interface ValidSettings {
  readonly stack: string;
  /** Settings with defaults in place of invalid values. */
  readonly settings: object;
  /** Returns whether a port that two services publish does so by the valid settings, and not by a default. */
  readonly isPort: (port: number, services: readonly string[]) => boolean;
}

/** Settings of an invalid file that are valid; undefined if too little remains. */
export function validSettings<Settings>(
  schema: z.ZodType<Settings>,
  input: unknown,
): ({ readonly settings: Settings } & Pick<ValidSettings, "isPort">) | undefined {
  const issues = schema.safeParse(input).error?.issues ?? [];
  if (typeof input !== "object" || input === null || issues.some(isOfFile)) return undefined;
  const rest: object = structuredClone(input);
  for (const issue of issues) {
    const keys = issue.code === "unrecognized_keys" ? issue.keys : [issue.path.at(-1)!];
    const parent = issue.code === "unrecognized_keys" ? issue.path : issue.path.slice(0, -1);
    omit(rest, parent, keys);
  }
  const { data } = schema.safeParse(rest);
  if (data === undefined) return undefined;
  const sections = issues.map(({ path }) => path[0]);
  const isService = (section: unknown) => /^(embed|triton)/.test(String(section));
  const affected = sections.map((section) => kebab(String(section)));
  return {
    settings: data,
    isPort: (port, services) =>
      portsIn(rest).filter((other) => other === port).length > 1 ||
      (sections.every(isService) && !services.some((service) => affected.includes(service))),
  };
}

function isOfFile({ path, code }: z.core.$ZodIssue): boolean {
  return path.length === 0 && code !== "unrecognized_keys";
}

/** Deletes keys of the object at `parent`; of a list, the whole list. */
function omit(root: object, parent: readonly PropertyKey[], keys: readonly PropertyKey[]): void {
  const object = valueAt(root, parent);
  if (Array.isArray(object)) omit(root, parent.slice(0, -1), [parent.at(-1)!]);
  else if (typeof object === "object" && object !== null) {
    for (const key of keys) Reflect.deleteProperty(object, key);
  }
}

/** Numbers in `port` and `ports`. */
function portsIn(value: unknown): readonly unknown[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    key === "port" ? [inner] : key === "ports" ? Object.values(inner) : portsIn(inner),
  );
}

function kebab(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
