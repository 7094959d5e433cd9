import { type Topic, topics } from "../changes/coverage.ts";
import { dangerOf } from "../changes/danger.ts";
import type { DiffBlock } from "../changes/diff-line.ts";
import type { ReviewedChange, StackReview } from "../changes/stack-review.ts";
import {
  type Block,
  details,
  heading,
  type Level,
  list,
  listOf,
  plural,
  type Text,
} from "./comment-blocks.ts";

/** Terraform's word for an action. */
export function actionWord(action: string): string {
  return { delete: "destroy", "no-op": "keep" }[action] ?? action;
}

/** Lists the changes of each stack. Unless `level` is `full`, lists those that need attention and counts the others. */
export function changeSection(stacks: readonly StackReview[], level: Level): readonly Block[] {
  const changing = stacks.filter(({ changes }) => changes.length > 0);
  if (level === "counts") return dangerCounts(stacks);
  const named =
    level === "full" ? changing : changing.filter(({ changes }) => changes.some(isDangerous));
  const others = changing
    .filter((stack) => !named.includes(stack))
    .flatMap(({ changes }) => changes);
  if (changing.length === 0) return [];
  return [
    heading(3, "Changes"),
    ...named.flatMap((stack) => [
      ...(stacks.length === 1 ? [] : [heading(4, stack.stack)]),
      ...(level === "full" ? allChanges(stack.changes) : dangersOf(stack.changes)),
    ]),
    ...countsText(named.length > 0 && stacks.length > 1 ? "In other stacks" : "Also", others),
  ];
}

function isDangerous(change: ReviewedChange): boolean {
  return dangerOf(change) < 3;
}

function dangerCounts(stacks: readonly StackReview[]): readonly Block[] {
  const dangerous = stacks.flatMap(({ changes }) => changes.filter(isDangerous));
  if (dangerous.length === 0) return [];
  return countsText(
    `${plural(dangerous.length, "change")} that need${dangerous.length === 1 ? "s" : ""} attention`,
    dangerous,
  );
}

function dangersOf(changes: readonly ReviewedChange[]): readonly Block[] {
  const others = changes.filter((it) => !isDangerous(it));
  return [list(changes.filter(isDangerous).map(changeText)), ...countsText("Also", others)];
}

function allChanges(changes: readonly ReviewedChange[]): readonly Block[] {
  const main = changes.filter(({ isStep }) => !isStep);
  const steps = changes.filter(({ isStep }) => isStep);
  const creations = main.filter(({ action }) => action === "create");
  const collapsed = creations.length > 8 ? creations : [];
  return [
    ...listOf(main.filter((it) => !collapsed.includes(it)).map(changeText)),
    ...(collapsed.length === 0
      ? []
      : [details(`${collapsed.length} created resources`, [list(collapsed.map(changeText))])]),
    ...(steps.length === 0
      ? []
      : [
          details(
            `${plural(steps.length, "deployment step")} (running services are not affected)`,
            [list(steps.map(changeText))],
          ),
        ]),
  ];
}

const maxTypes = 12;

/** `Also: 3 × docker_container create, 2 × docker_volume update.` */
function countsText(label: string, changes: readonly ReviewedChange[]): readonly Block[] {
  if (changes.length === 0) return [];
  const counts = new Map<string, number>();
  for (const { type, action } of changes) {
    const key = `${type} ${actionWord(action)}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const sorted = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  const shown = sorted.slice(0, maxTypes).map(([key, count]) => `${count} × ${key}`);
  const rest = sorted.slice(maxTypes).reduce((sum, [, count]) => sum + count, 0);
  const text = [...shown, ...(rest === 0 ? [] : [`${rest} of other types`])].join(", ");
  return [{ kind: "text", text: [`${label}: ${text}.`] }];
}

function unexaminedText(about: readonly Topic[]): string {
  return about.length === topics.length ? "Not examined." : `Not examined for ${about.join(", ")}.`;
}

function changeText(change: ReviewedChange): Text {
  const { action, address, title, forcedBy, reason, impact, movedFrom, imported } = change;
  return [
    { strong: actionWord(action) },
    " ",
    ...(title === address ? [{ code: title }] : [{ code: title }, " (", { code: address }, ")"]),
    ...(change.deposed === undefined ? [] : [", deposed ", { code: change.deposed }]),
    ...(change.createBeforeDestroy && !change.isStep ? [", create before destroy"] : []),
    ...(movedFrom === undefined ? [] : [", moved from ", { code: movedFrom }]),
    ...(imported ? [", imported"] : []),
    ...(impact === undefined ? [] : [`: ${impact.text}`]),
    ...(change.unexamined === undefined
      ? []
      : [{ break: true as const }, unexaminedText(change.unexamined)]),
    ...(reason === undefined ? [] : [{ break: true as const }, reason]),
    ...(forcedBy.length === 0
      ? []
      : [
          { break: true as const },
          "Forced by ",
          ...forcedBy
            .slice(0, 4)
            .flatMap((text, index): Text => [...(index === 0 ? [] : [", "]), { code: text }]),
          forcedBy.length > 4 ? ` and ${forcedBy.length - 4} more.` : ".",
        ]),
  ];
}

export function differenceSection(stacks: readonly StackReview[]): readonly Block[] {
  const render = ({ title, diffs }: ReviewedChange): Block => ({ kind: "diff", title, diffs });
  const blocks = stacks.flatMap(({ stack, changes }) => {
    const different = changes.filter(({ diffs }) => diffs.length > 0);
    const titled = different.filter(({ diffs }) => hasTitle(diffs));
    const others = different.filter(({ diffs }) => !hasTitle(diffs));
    const steps = others.filter(({ isStep }) => isStep);
    return [
      ...(stacks.length > 1 && different.length > 0 ? [heading(4, stack)] : []),
      // of a step, only the files that it writes
      ...titled.map((change) =>
        render(
          change.isStep
            ? { ...change, diffs: change.diffs.filter(({ title }) => title !== "") }
            : change,
        ),
      ),
      ...others.filter(({ isStep }) => !isStep).map(render),
      ...(steps.length === 0
        ? []
        : [
            details(`Differences of ${plural(steps.length, "deployment step")}`, steps.map(render)),
          ]),
    ];
  });
  return blocks.length === 0 ? [] : [heading(3, "Differences"), ...blocks];
}

function hasTitle(diffs: readonly DiffBlock[]): boolean {
  return diffs.some(({ title }) => title !== "");
}
