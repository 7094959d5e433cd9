import { few } from "./stack-facts.ts";
import { subjectAt } from "./subject.ts";
import type { SynthesizedDocument } from "./synthesized-document.ts";
import { blocksOf, canonical, ownValue } from "./value-paths.ts";

/** Data sources that run a program or send a request during the plan. */
const activeDataSources = new Set(["external", "http", "terraform_remote_state"]);

/**
 * Sentences about new or changed programs that Terraform runs on the machine of the plan or apply; none for a new stack. Commands are
 * omitted because they may contain secrets.
 */
export function newPrograms(
  before: SynthesizedDocument | undefined,
  after: SynthesizedDocument | undefined,
): readonly string[] {
  if (before === undefined) return [];
  const old = programsIn(before);
  const addressesOf = new Map<string, string[]>();
  for (const [address, { kind, definition }] of programsIn(after)) {
    if (old.get(address)?.definition === definition) continue;
    const change = `${old.has(address) ? "changed" : "new"} ${kind}`;
    addressesOf.set(change, [...(addressesOf.get(change) ?? []), subjectAt(address)]);
  }
  return [...addressesOf]
    .map(([change, addresses]) => `${few(addresses.sort())}: ${change}.`)
    .sort();
}

interface Program {
  readonly kind: string;
  /** Canonical definition, for comparison. */
  readonly definition: string;
}

function programsIn(from: SynthesizedDocument | undefined): ReadonlyMap<string, Program> {
  const found = new Map<string, Program>();
  for (const [type, resources] of Object.entries(from?.resource ?? {})) {
    for (const [name, body] of Object.entries(resources)) {
      const list = blocksOf(ownValue(body, "provisioner"));
      if (list.length === 0) continue;
      const kinds = [...new Set(list.flatMap((it) => Object.keys(it)))].sort().join(", ");
      found.set(`${type}.${name}`, {
        kind: `program run during the apply (${kinds})`,
        definition: canonical([list, ownValue(body, "connection") ?? null]),
      });
    }
  }
  for (const [type, sources] of Object.entries(from?.data ?? {})) {
    if (!activeDataSources.has(type)) continue;
    for (const [name, body] of Object.entries(sources)) {
      found.set(`data.${type}.${name}`, {
        kind: "program or request run during the plan",
        definition: canonical(body),
      });
    }
  }
  return found;
}
