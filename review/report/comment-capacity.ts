import { type Capacity, hoursPerMonth, usdPerThousand } from "../changes/capacity.ts";
import type { Serving, ServingChange } from "../changes/serving.ts";
import type { StackReview } from "../changes/stack-review.ts";
import { few } from "../input/stack-facts.ts";
import { sameValue } from "../input/value-paths.ts";
import {
  type Block,
  details,
  gapItems,
  heading,
  type Level,
  listOf,
  plural,
  type Text,
} from "./comment-blocks.ts";

/** GPUs, replicas and cost of each environment; only of changed ones unless `level` is `full`. */
export function capacitySection(stacks: readonly StackReview[], level: Level): readonly Block[] {
  const known = stacks.filter(({ capacity }) => capacity.before ?? capacity.after);
  if (known.length === 0) return [];
  const shown = known.filter(
    ({ capacity: { before, after } }) =>
      level === "full" || (level === "attention" && !sameValue(before, after)),
  );
  const gaps = gapItems(stacks, "capacity and cost");
  const cell = (
    { capacity: { before, after } }: StackReview,
    text: (capacity: Capacity) => string | undefined,
    none = "none",
  ): Text => {
    const cellText = (it: Capacity | undefined) => (it === undefined ? none : (text(it) ?? "–"));
    return transition(cellText(before), cellText(after));
  };
  const rows = shown.map((stack): readonly Text[] => [
    [{ code: stack.stack }],
    cell(stack, ({ gpus }) => gpus),
    cell(stack, vramText),
    cell(stack, replicasText),
    cell(stack, ratesText),
    cell(stack, ({ usdPerHour }) => usdPerHour?.toFixed(2), "0"),
    cell(
      stack,
      ({ usdPerHour: usd }) => (usd === undefined ? undefined : (usd * hoursPerMonth).toFixed(0)),
      "0",
    ),
    cell(stack, (capacity) => usdPerThousand(capacity)?.toFixed(5)),
  ]);
  const counted = known.filter(isDeployed);
  const total = totalRow(counted);
  if (level === "counts" && total === undefined) return [];
  const omitted = level === "counts" ? 0 : known.length - shown.length;
  return [
    heading(3, "Capacity and cost"),
    {
      kind: "table",
      head: [
        ["environment"],
        ["GPUs"],
        ["GPU memory, MiB (used of usable)"],
        ["replicas"],
        ["images/s"],
        ["$/hour"],
        [`$/month (${hoursPerMonth} h)`],
        ["$/1,000 images"],
      ],
      rows: [...rows, ...(total === undefined ? [] : [total])],
    },
    ...listOf(
      [...(shown.length === 0 ? [] : capacityNotes(shown)), ...omittedNote(total, known), ...gaps],
      omitted,
      "unchanged",
    ),
  ];
}

/** Table of the image, instances and TensorRT settings of each Triton server. Unchanged servers are collapsed. */
export function servingSection(stacks: readonly StackReview[], level: Level): readonly Block[] {
  if (level === "counts") return [];
  const all = stacks.flatMap(({ stack, serving }) => serving.map((it) => ({ stack, ...it })));
  const cell = (
    { before, after }: ServingChange,
    text: (serving: Serving) => string | undefined,
  ): Text => {
    const cellText = (it: Serving | undefined) => (it && text(it)) ?? "not used";
    return transition(cellText(before ?? after), cellText(after ?? before));
  };
  const status = ({ before, after }: ServingChange): Text => {
    if (before === undefined) return [", ", { strong: "new" }];
    return after === undefined ? [", ", { strong: "removed" }] : [];
  };
  const table = (some: typeof all): Block => ({
    kind: "table",
    head: [["Triton"], ["image"], ["instances"], ["largest batch"], ["TensorRT"]],
    rows: some.map((it) => [
      [{ code: `${it.stack}: ${it.service}` }, ...status(it)],
      cell(it, ({ image }) => image),
      cell(it, ({ instances }) => instances),
      cell(it, ({ maxBatch }) => (maxBatch === undefined ? undefined : String(maxBatch))),
      cell(it, ({ tensorrt }) => tensorrt),
    ]),
  });
  // an unknown image may have changed
  const isSame = ({ before, after }: ServingChange) =>
    sameValue(before, after) && before?.image !== "–";
  const changed = all.filter((it) => !isSame(it));
  const same = all.filter(isSame);
  return [
    ...(changed.length === 0 ? [] : [table(changed)]),
    ...(same.length === 0 || level !== "full"
      ? []
      : [
          details(
            `${plural(same.length, "Triton server")} with unchanged image, instances and TensorRT settings`,
            [table(same)],
          ),
        ]),
  ];
}

/** `1 → 2`, or the unchanged text. */
function transition(before: string, after: string): Text {
  return before === after ? [after] : [`${before} → `, { strong: after }];
}

/**
 * Returns whether an environment is assumed to be deployed. If the review compares two synthesized folders instead of a plan,
 * unchanged environments may not be deployed.
 */
function isDeployed({ source, changes }: StackReview): boolean {
  return source === "plan" || changes.length > 0;
}

function omittedNote(
  total: readonly Text[] | undefined,
  stacks: readonly StackReview[],
): readonly Text[] {
  const others = stacks.filter((stack) => !isDeployed(stack)).map(({ stack }) => stack);
  if (total === undefined || others.length === 0) return [];
  return [[`all: without ${few(others)}, not changed here and possibly not deployed`]];
}

function totalRow(stacks: readonly StackReview[]): readonly Text[] | undefined {
  const priced = stacks.filter(
    ({ capacity: { before, after } }) => (before?.usdPerHour ?? after?.usdPerHour) !== undefined,
  );
  if (priced.length < 2) return undefined;
  const sum = (moment: "before" | "after") =>
    priced.reduce((all, { capacity }) => all + (capacity[moment]?.usdPerHour ?? 0), 0);
  const cell = (digits: number, hours: number): Text =>
    transition((sum("before") * hours).toFixed(digits), (sum("after") * hours).toFixed(digits));
  const rates = (moment: "before" | "after") =>
    stacks.flatMap(({ capacity }) => capacity[moment] ?? []).map((it) => it.imagesPerSecond);
  const isPredicted = [...rates("before"), ...rates("after")].every((it) => it !== undefined);
  const rate = (moment: "before" | "after") =>
    rates(moment)
      .reduce<number>((all, it) => all + (it ?? 0), 0)
      .toFixed(0);
  const images = isPredicted ? transition(rate("before"), rate("after")) : [""];
  return [["all"], [""], [""], [""], images, cell(2, 1), cell(0, hoursPerMonth), [""]];
}

/** Predicted rate, and the rate of the GPUs if something else is the bottleneck. */
function ratesText({ imagesPerSecond: rate, gpuImagesPerSecond: gpus }: Capacity) {
  if (rate === undefined) return undefined;
  const isLimited = gpus !== undefined && gpus > rate * 1.05;
  return `${rate.toFixed(0)}${isLimited ? ` (GPUs alone: ${gpus.toFixed(0)})` : ""}`;
}

function vramText({ vramUsedMiB, vramUsableMiB }: Capacity): string | undefined {
  if (vramUsableMiB === undefined) return undefined;
  return `${vramUsedMiB ?? "–"} of ${vramUsableMiB}`;
}

function replicasText({ replicas }: Capacity): string {
  const texts = replicas.map(
    ({ service, min, max }) => `${service} ${min === max ? min : `${min} to ${max}`}`,
  );
  return texts.join(", ");
}

function capacityNotes(stacks: readonly StackReview[]): readonly Text[] {
  const capacities = stacks.flatMap(({ stack, capacity: { before, after } }) =>
    [before, after].flatMap((it) => (it === undefined ? [] : [{ stack, ...it }])),
  );
  const sources = new Map<string, Set<string>>();
  for (const { stack, predictionSource: source } of capacities) {
    if (source === undefined) continue;
    sources.set(source, (sources.get(source) ?? new Set()).add(stack));
  }
  const without = new Map<string, Set<string>>();
  for (const { stack, imagesPerSecond: rate, predictionMissing: reason } of capacities) {
    if (rate !== undefined) continue;
    const text = reason === undefined ? "" : ` (${reason})`;
    without.set(text, (without.get(text) ?? new Set()).add(stack));
  }
  const dates = [
    ...new Set(capacities.flatMap(({ priceDate }) => (priceDate === undefined ? [] : [priceDate]))),
  ].sort();
  return [
    ...[...sources].map(
      ([source, names]): Text => [`images/s of ${few([...names])}: predicted, ${source}`],
    ),
    ...[...without].map(
      ([reason, names]): Text => [`images/s of ${few([...names])}: no prediction${reason}`],
    ),
    ...(capacities.some(({ vramUsableMiB }) => vramUsableMiB !== undefined)
      ? [
          [
            "GPU memory: estimate for the fullest GPU; usable memory is the total less a safety margin",
          ],
        ]
      : []),
    ...(dates.length === 0
      ? []
      : [[`cost: typical prices of the GPUs only, as of ${dates.join(" and ")}`]]),
  ];
}
