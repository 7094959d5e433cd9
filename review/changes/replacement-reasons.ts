import type { Path, ResourceChange } from "../input/change.ts";
import { hidden } from "../input/secrets.ts";
import { pathText } from "../input/value-paths.ts";
import type { DiffBlock } from "./diff-line.ts";

/** Sentences for Terraform's `action_reason`. */
const reasons: Readonly<Record<string, string>> = {
  replace_because_tainted: "It is tainted: its creation failed, or it was tainted manually.",
  replace_by_request: "Requested with -replace.",
  replace_by_triggers: "A resource in its replace_triggered_by changes.",
  replace_because_cannot_update: "The provider cannot update it in place.",
  delete_because_wrong_repetition: "count or for_each was added or removed.",
  delete_because_count_index: "count was lowered.",
  delete_because_each_key: "Its key was removed from for_each.",
  delete_because_enabled_false: "Its enabled is false.",
  forgot_because_lifecycle_destroy_in_config: "Its lifecycle sets destroy = false.",
  forgot_because_lifecycle_destroy_in_state: "Its lifecycle in the state has destroy = false.",
  delete_because_no_module: "Its module was removed.",
  delete_because_no_move_target: "The target address of its moved block does not exist.",
};

/** Returns the reason that Terraform gives for an action; undefined if the attributes that force a replacement explain it. */
export function reasonText(
  { reason = "" }: ResourceChange,
  forced: readonly string[],
): string | undefined {
  const isExplained =
    forced.length > 0 && /^replace_(by_triggers|because_cannot_update)$/.test(reason);
  return isExplained || !Object.hasOwn(reasons, reason) ? undefined : reasons[reason];
}

/** Attributes that force a replacement, with their changes. */
export function forcedBy(paths: readonly Path[], diffs: readonly DiffBlock[]): readonly string[] {
  const lines = diffs.filter(({ title }) => title === "").flatMap(({ lines: all }) => all);
  if (paths.some(([first]) => first === "for_each")) return ["its content (for_each key)"];
  const texts = paths.flatMap((path) => {
    const [first = ""] = path;
    if (first === "replace_triggered_by") return ["replace_triggered_by"];
    const own = lines.filter(({ path }) => path === first || startsWithName(path, String(first)));
    if (own.length === 0 || own.length > 3) return [pathText(path)];
    return own.map(({ path, before, after }) => {
      if (before === undefined) return `${path} (added${valueText(after)})`;
      return after === undefined
        ? `${path} (removed${valueText(before)})`
        : `${path} (${before} → ${after})`;
    });
  });
  return [...new Set(texts)];
}

function valueText(value: string | undefined): string {
  return value === undefined || value === hidden ? "" : `: ${value}`;
}

function startsWithName(where: string, name: string): boolean {
  return where.startsWith(name) && /^[.[ ]/.test(where.slice(name.length));
}
