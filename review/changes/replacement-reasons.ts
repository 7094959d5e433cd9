import type { Path, ResourceChange } from "../input/change.ts";
import { pathText } from "../input/value-paths.ts";
import type { DiffBlock } from "./diff-line.ts";

/** Terraform's words for what no attribute says. */
const reasons: Readonly<Record<string, string>> = {
  replace_because_tainted:
    "It is tainted: an apply failed in the middle of it, or somebody marked it.",
  replace_by_request: "Somebody asked for it, with -replace.",
  replace_by_triggers: "A resource that it follows changes (replace_triggered_by).",
  replace_because_cannot_update: "Its provider cannot change it in place.",
  delete_because_wrong_repetition:
    "It has a key, and count or for_each is gone, or the other way round.",
  delete_because_count_index: "count is lower.",
  delete_because_each_key: "for_each has its key no more.",
  delete_because_no_module: "Its module is gone.",
  delete_because_no_move_target: "It was to be moved to an address that there is none of.",
};

/** What an attribute says better is not said. */
export function becauseOf(
  { reason = "" }: ResourceChange,
  forced: readonly string[],
): string | undefined {
  const isSaid = forced.length > 0 && /^replace_(by_triggers|because_cannot_update)$/.test(reason);
  return isSaid || !Object.hasOwn(reasons, reason) ? undefined : reasons[reason];
}

/** What forces a replacement, each with what is different there. */
export function forcedBy(paths: readonly Path[], diffs: readonly DiffBlock[]): readonly string[] {
  const lines = diffs.filter(({ title }) => title === "").flatMap(({ lines: all }) => all);
  if (paths.some(([first]) => first === "for_each")) return ["what it runs with"];
  const texts = paths.flatMap((path) => {
    const [first = ""] = path;
    if (first === "replace_triggered_by") return ["a resource that it follows"];
    const own = lines.filter(({ path }) => path === first || startsWithName(path, String(first)));
    if (own.length === 0 || own.length > 3) return [pathText(path)];
    return own.map(({ path, before, after }) => {
      if (before === undefined) return `${path} (${after ?? ""} is added)`;
      return after === undefined ? `${path} (${before} is gone)` : `${path} (${before} → ${after})`;
    });
  });
  return [...new Set(texts)];
}

function startsWithName(where: string, name: string): boolean {
  return where.startsWith(name) && /^[.[ ]/.test(where.slice(name.length));
}
