import { few } from "./stack-facts.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import { canonical, isObject, stepInto } from "./value-paths.ts";

/** Data sources that run a program or send a request during the plan. */
const activeDataSources = new Set(["external", "http", "terraform_remote_state"]);

/**
 * Sentences about new or changed programs that Terraform runs on the machine that plans or applies; none for a new stack.
 * Commands are not printed because they may contain secrets.
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
    const change = `${old.has(address) ? "changed" : "new"} ${what}`;
    alike.set(change, [...(alike.get(change) ?? []), address]);
  }
  return [...alike].map(([change, addresses]) => `${few(addresses.sort())}: ${change}.`).sort();
}

interface Program {
  readonly what: string;
  /** Canonical definition, for comparison. */
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
        what: `program run during the apply (${kinds})`,
        text: canonical([list, stepInto(body, "connection") ?? null]),
      });
    }
  }
  for (const [type, sources] of Object.entries(from?.data ?? {})) {
    if (!activeDataSources.has(type)) continue;
    for (const [name, body] of Object.entries(sources)) {
      found.set(`data.${type}.${name}`, {
        what: "program or request run during the plan",
        text: canonical(body),
      });
    }
  }
  return found;
}
