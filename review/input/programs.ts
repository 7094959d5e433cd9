import { few } from "./stack-facts.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import { canonical, isObject, stepInto } from "./value-paths.ts";

/** Data sources that run a program, or ask somebody, when a plan is made. */
const asking = new Set(["external", "http", "terraform_remote_state"]);

/**
 * A sentence for resources that run another program than before on the machine that plans or applies. Of a stack that is new as
 * a whole everything is new. What runs is not said: a command may have a secret in it.
 */
export function newPrograms(
  before: SynthesizedDocument | undefined,
  after: SynthesizedDocument | undefined,
): readonly string[] {
  if (before === undefined) return [];
  const old = programsIn(before);
  const alike = new Map<string, string[]>();
  for (const [address, { what, text }] of programsIn(after)) {
    if (old.get(address)?.text === text) continue;
    const said = `${what}, ${old.has(address) ? "another one" : "none"} before.`;
    alike.set(said, [...(alike.get(said) ?? []), address]);
  }
  return [...alike]
    .map(
      ([said, all]) =>
        `${few(all.sort())} ${all.length === 1 ? said : said.replaceAll(/\b(run|ask)s\b/g, "$1")}`,
    )
    .sort();
}

interface Program {
  readonly what: string;
  /** All of it: two programs are the same where this is. */
  readonly text: string;
}

function programsIn(from: SynthesizedDocument | undefined): ReadonlyMap<string, Program> {
  const found = new Map<string, Program>();
  for (const [type, resources] of Object.entries(from?.resource ?? {})) {
    for (const [name, body] of Object.entries(resources)) {
      const given = stepInto(body, "provisioner");
      const list = (Array.isArray(given) ? given : [given]).filter(isObject);
      if (list.length === 0) continue;
      const kinds = [...new Set(list.flatMap((it) => Object.keys(it)))].sort().join(", ");
      found.set(`${type}.${name}`, {
        what: `runs a program where it is applied (${kinds})`,
        text: canonical([list, stepInto(body, "connection") ?? null]),
      });
    }
  }
  for (const [type, sources] of Object.entries(from?.data ?? {})) {
    if (!asking.has(type)) continue;
    for (const [name, body] of Object.entries(sources)) {
      found.set(`data.${type}.${name}`, {
        what: "runs a program, or asks somebody, where a plan is made",
        text: canonical(body),
      });
    }
  }
  return found;
}
