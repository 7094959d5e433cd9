import { type Capacity, hoursPerMonth, usdPerThousand } from "./capacity.ts";
import type { RuleFinding } from "./change.ts";
import { gapTexts, type Topic } from "./coverage.ts";
import type { DiffBlock } from "./diff-line.ts";
import {
  type Counts,
  countNames,
  dangerOf,
  type Review,
  type ReviewedChange,
  type StackReview,
} from "./review.ts";
import type { Serving, ServingChange } from "./serving.ts";
import { few } from "./stack-facts.ts";
import { filesUnknown, modulesUnknown } from "./trees.ts";
import { sameValue } from "./value-paths.ts";
import { isBroken } from "./verdict.ts";

/** What a review says, as headings, lists and tables: Markdown and HTML are both made of these. */

export type Span =
  | string
  | { readonly break: true }
  | { readonly code: string }
  | { readonly strong: string }
  | { readonly link: string; readonly text: string };
export type Text = readonly Span[];

export type Block =
  | { readonly kind: "heading"; readonly level: 2 | 3 | 4; readonly text: Text }
  | { readonly kind: "text"; readonly text: Text }
  | { readonly kind: "list"; readonly items: readonly Text[] }
  | {
      readonly kind: "table";
      readonly head: readonly Text[];
      readonly rows: readonly (readonly Text[])[];
    }
  | { readonly kind: "diff"; readonly title: string; readonly diffs: readonly DiffBlock[] }
  | { readonly kind: "details"; readonly summary: Text; readonly blocks: readonly Block[] };

/** How much is said: each rung leaves out more, and the dangerous part last. */
export interface Rung {
  /** Differences of: everything; of what is destroyed, replaced or updated without steps; of none. */
  readonly differences: "all" | "services" | "none";
  /** Of what is created or a step: each by its name, or how many of each type. */
  readonly creations: "named" | "counted";
  /** The same of what is updated, or replaced without harm. */
  readonly updates: "named" | "counted";
  /** Of all stacks together: most dangerous changes that are named, the worst first, and most errors and new exposures. */
  readonly dangers: number;
  /** Most rows and items of any other list or table. */
  readonly items: number;
  /** Most stacks that have a row of their own in the table of counts; the others have one together. */
  readonly stacks: number;
  /** What it leaves out, for the reader. Empty: nothing. */
  readonly leftOut: string;
}

const all = Number.POSITIVE_INFINITY;

export const fullRung: Rung = {
  differences: "all",
  creations: "named",
  updates: "named",
  dangers: all,
  items: all,
  stacks: all,
  leftOut: "",
};

const countedRung: Rung = {
  differences: "none",
  creations: "counted",
  updates: "counted",
  dangers: all,
  items: 100,
  stacks: all,
  leftOut: "names of what is created or updated, all differences, and long tables",
};

/** From the whole to the counts. */
export const ladder: readonly Rung[] = [
  fullRung,
  {
    ...fullRung,
    differences: "services",
    creations: "counted",
    leftOut: "names of what is created and differences of the deployment's steps",
  },
  {
    ...fullRung,
    differences: "none",
    creations: "counted",
    leftOut: "names of what is created and all differences",
  },
  countedRung,
  ...(
    [
      [300, 60, 200],
      [150, 40, 200],
      [80, 20, 100],
      [40, 10, 60],
      [20, 5, 30],
      [8, 3, 12],
      [3, 1, 5],
    ] as const
  ).map(([dangers, items, stacks]): Rung => ({ ...countedRung, dangers, items, stacks })),
];

export interface DocumentOptions {
  readonly rung: Rung;
  /** Address of the folder with the pages of the rules, with a slash at its end. */
  readonly rulesUrl?: string;
  /** Where the whole report is, for a comment that is shortened. */
  readonly reportUrl?: string;
}

export const verdictTitles = {
  safe: "✅ Safe",
  attention: "⚠️ Needs attention",
  blocked: "⛔ Blocked",
} as const;

/** Reasons of the verdict that are said at most. */
const mostReasons = 12;

export function documentOf(review: Review, options: DocumentOptions): readonly Block[] {
  const { rung, rulesUrl } = options;
  const { verdict, stacks } = review;
  const nothing = stacks.every(isUnchanged);
  const dangerous = dangerousOf(stacks);
  const named = new Set(dangerous.slice(0, rung.dangers));
  return [
    { kind: "heading", level: 2, text: [`${titleOf(review)}: ${headline(review)}`] },
    ...listOf(
      verdict.reasons.slice(0, mostReasons).map((reason) => [reason]),
      verdict.reasons.length - mostReasons,
    ),
    ...(rung.leftOut === "" ? [] : [shortened(options, dangerous.length, named.size)]),
    countTable(stacks, rung),
    ...(nothing ? [] : whatHappens(stacks, rung, named)),
    ...capacitySection(stacks, rung),
    ...servingSection(stacks, rung),
    ...exposureSection(stacks, rung),
    ...(rung.differences === "none" ? [] : differenceSection(stacks, rung)),
    ...ruleSection(stacks, rung, rulesUrl),
    ...driftSection(stacks, rung),
    ...notKnownSection(stacks, rung),
  ];
}

/** Two trees have the same text where a file that an image is made of is another one: safe is what they tell, and no more. */
function titleOf({ verdict, stacks }: Review): string {
  const untold = stacks.some(({ notKnown }) =>
    notKnown.some((it) => [filesUnknown, modulesUnknown].some((start) => it.startsWith(start))),
  );
  const bounds = verdict.level === "safe" && untold ? " but for files that were not compared" : "";
  return `${verdictTitles[verdict.level]}${bounds}`;
}

/** Dangerous changes of all stacks, the worst first, and of those that are as bad the first of every stack, then the second. */
function dangerousOf(stacks: readonly StackReview[]): readonly ReviewedChange[] {
  return [0, 1, 2].flatMap((danger) =>
    stacks
      .flatMap(({ changes }) =>
        changes
          .filter((change) => dangerOf(change) === danger)
          .map((change, place) => ({ change, place })),
      )
      .sort((a, b) => a.place - b.place)
      .map(({ change }) => change),
  );
}

function shortened({ rung, reportUrl }: DocumentOptions, dangerous: number, named: number): Block {
  const whole: Text =
    reportUrl === undefined
      ? ["the whole report (", { code: "clipstack review --html" }, " or ", { code: "--json" }, ")"]
      : [{ link: reportUrl, text: "the whole report" }];
  const said =
    named < dangerous
      ? [
          " Of ",
          { strong: `${dangerous} dangerous changes` },
          ` the ${named} worst are named, the others counted.`,
        ]
      : [" Everything that stops, destroys or loses something is named."];
  return {
    kind: "text",
    text: [
      { strong: "Shortened" },
      ` to fit the limit of a comment: without ${rung.leftOut}.`,
      ...said,
      " The rest is in ",
      ...whole,
      ".",
    ],
  };
}

export function isUnchanged({ changes, drift, outputs, besides }: StackReview): boolean {
  return [changes, drift, outputs, besides].every((list) => list.length === 0);
}

function headline({ verdict, stacks }: Review): string {
  const changing = stacks.filter((stack) => stack.changes.length > 0);
  if (changing.length === 0) {
    const broken = stacks.filter(isBroken).map(({ stack }) => stack);
    if (broken.length > 0) return `the plan of ${few(broken)} ended with an error`;
    const outputs = stacks.filter((it) => it.outputs.length > 0);
    if (outputs.length > 0) {
      const names = [...new Set(outputs.flatMap((it) => it.outputs))];
      return `${few(outputs.map(({ stack }) => stack))}: no resource changes, but the output ${few(names)}`;
    }
    const what = verdict.level === "safe" ? "nothing changes" : "no resource changes";
    return stacks.length === 1 ? `${stacks[0]?.stack}: ${what}` : what;
  }
  const changes = changing.flatMap((stack) => stack.changes);
  const words = { delete: "destroyed", replace: "replaced", update: "updated", create: "created" };
  const parts = Object.entries(words)
    .map(([name, word]) => {
      const count = changes.filter(({ action, isStep }) => action === name && !isStep).length;
      return count === 0 ? "" : `${count} ${word}`;
    })
    .filter((part) => part !== "");
  const steps = changes.filter(({ isStep }) => isStep).length;
  const names =
    changing.length <= 3
      ? changing.map(({ stack }) => stack).join(", ")
      : `${changing.length} stacks`;
  const also = steps === 0 ? [] : [`${steps} ${steps === 1 ? "step" : "steps"} of the deployment`];
  const all = [...parts, ...also];
  return all.length === 0 ? `${names}: no resource changes` : `${names}: ${all.join(", ")}`;
}

function countTable(stacks: readonly StackReview[], rung: Rung): Block {
  const heads = {
    delete: "destroy",
    replace: "replace",
    update: "update",
    create: "create",
    forget: "forget",
    move: "move",
    import: "import",
    drift: "drift",
    unchanged: "unchanged",
  } as const;
  // what nobody has stays away, so that the table fits a telephone
  const always = new Set(["delete", "replace", "update", "create", "unchanged"]);
  const shown = countNames.filter(
    (name) => always.has(name) || stacks.some(({ counts }) => counts[name] > 0),
  );
  const cells = (counts: Counts) =>
    shown.map((name): Text => {
      const text = String(counts[name]);
      const loud = counts[name] > 0 && (name === "delete" || name === "replace");
      return [loud ? { strong: text } : text];
    });
  const kept = new Set([...stacks].sort(byWorst).slice(0, rung.stacks));
  const own = stacks.filter((stack) => kept.has(stack));
  const others = stacks.filter((stack) => !kept.has(stack));
  return {
    kind: "table",
    head: [["stack"], ...shown.map((name) => [heads[name]]), ["from"]],
    rows: [
      ...own.map(({ stack, counts, source, terraformVersion }) => [
        [{ code: stack }],
        ...cells(counts),
        [
          source === "trees"
            ? "two synthesized trees"
            : `a plan${terraformVersion === undefined ? "" : ` of Terraform ${terraformVersion}`}`,
        ],
      ]),
      ...(others.length === 0
        ? []
        : [
            [
              [`${others.length} more`],
              ...cells(
                Object.fromEntries(
                  countNames.map((name) => [
                    name,
                    others.reduce((sum, { counts }) => sum + counts[name], 0),
                  ]),
                ) as Counts,
              ),
              [""],
            ],
          ]),
    ],
  };
}

/** Stacks with the worst change first, then those with the most of them. */
function byWorst(a: StackReview, b: StackReview): number {
  const [left, right] = [a, b].map(({ changes }) => changes.map(dangerOf));
  const worst = (all: readonly number[] = []) => all.reduce((one, two) => Math.min(one, two), 4);
  const many = (all: readonly number[] = []) => all.filter((it) => it < 3).length;
  return worst(left) - worst(right) || many(right) - many(left) || (a.stack < b.stack ? -1 : 1);
}

const actionWords: Readonly<Record<ReviewedChange["action"] | "no-op", string>> = {
  delete: "destroy",
  replace: "replace",
  update: "update",
  create: "create",
  forget: "forget",
  "no-op": "keep",
};

function whatHappens(
  stacks: readonly StackReview[],
  rung: Rung,
  dangers: ReadonlySet<ReviewedChange>,
): readonly Block[] {
  const changing = stacks.filter(({ changes }) => changes.length > 0);
  // a stack without any name is told by its row of counts
  const shown =
    rung.stacks === all
      ? changing
      : changing.filter(({ changes }) => changes.some((it) => dangers.has(it)));
  if (shown.length === 0) return [];
  return [
    { kind: "heading", level: 3, text: ["What happens"] },
    ...shown.flatMap((stack) => [
      ...(stacks.length === 1 ? [] : [heading4(stack.stack)]),
      ...stackChanges(stack, rung, dangers),
    ]),
  ];
}

function heading4(text: string): Block {
  return { kind: "heading", level: 4, text: [text] };
}

function stackChanges(
  { changes }: StackReview,
  rung: Rung,
  dangers: ReadonlySet<ReviewedChange>,
): readonly Block[] {
  const main = changes.filter(({ isStep }) => !isStep);
  const steps = changes.filter(({ isStep }) => isStep);
  const isNamed = (change: ReviewedChange) => {
    if (dangerOf(change) < 3) return dangers.has(change);
    return (change.action === "create" ? rung.creations : rung.updates) === "named";
  };
  const named = main.filter(isNamed);
  const others = main.filter((it) => !isNamed(it));
  const beyond = others.filter((it) => dangerOf(it) < 3);
  const counted = [
    ...others.filter((it) => dangerOf(it) === 3),
    ...(rung.creations === "counted" ? steps : []),
  ];
  const creations = named.filter(({ action }) => action === "create");
  const folded = creations.length > 8 ? creations : [];
  return [
    ...listOf(
      named.filter((it) => !folded.includes(it)).map(changeText),
      beyond.length,
      typeCounts(beyond),
    ),
    ...(folded.length === 0
      ? []
      : [details(`${folded.length} are created`, folded.map(changeText))]),
    ...(rung.creations === "named" && steps.length > 0
      ? [
          details(
            `${steps.length} ${steps.length === 1 ? "step" : "steps"} of the deployment: nothing that runs afterwards`,
            steps.map(changeText),
          ),
        ]
      : []),
    ...(counted.length === 0
      ? []
      : [{ kind: "text" as const, text: [`Also: ${typeCounts(counted)}.`] }]),
  ];
}

function details(summary: string, items: readonly Text[]): Block {
  return { kind: "details", summary: [summary], blocks: [{ kind: "list", items }] };
}

/** `3 docker_container created, 2 docker_volume updated` */
function typeCounts(changes: readonly ReviewedChange[]): string {
  const counts = new Map<string, number>();
  for (const { type, action } of changes) {
    const key = `${type} ${actionWords[action]}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts]
    .sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
    .map(([key, count]) => `${count} × ${key}`)
    .join(", ");
}

function listOf(items: readonly Text[], more: number, what = ""): readonly Block[] {
  if (items.length === 0 && more <= 0) return [];
  const rest: readonly Text[] =
    more > 0 ? [[`and ${more} more${what === "" ? "" : `: ${what}`}`]] : [];
  return [{ kind: "list", items: [...items, ...rest] }];
}

function changeText(change: ReviewedChange): Text {
  const { action, address, title, forcedBy, because, consequence, movedFrom, imported } = change;
  return [
    { strong: actionWords[action] },
    " ",
    ...(title === address ? [] : [{ code: title }, " "]),
    "(",
    { code: address },
    ...(change.deposed === undefined ? [] : [", deposed ", { code: change.deposed }]),
    ")",
    ...(change.createBeforeDestroy && !change.isStep ? [", the new one first"] : []),
    ...(movedFrom === undefined ? [] : [", moved from ", { code: movedFrom }]),
    ...(imported ? [", imported"] : []),
    ...(consequence === undefined ? [] : [`: ${lowerFirst(consequence.text)}`]),
    ...(change.unexamined === undefined
      ? []
      : [{ break: true as const }, `Not examined for ${change.unexamined.join(", ")}.`]),
    ...(because === undefined ? [] : [{ break: true as const }, because]),
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

/** A text on one line, and what nobody sees in it by its code: a mark may turn the direction of what follows. */
export function visible(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll(/[\p{Cc}\p{Cf}]/gu, (mark) => {
    // parts of a picture of a face
    if (mark === "\u200d") return mark;
    return `(U+${(mark.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")})`;
  });
}

/** The start of a sentence in the middle of one; a name keeps its letter. */
function lowerFirst(text: string): string {
  return /^(Every|It|All|Its|Until|Nobody|Pods|Fewer|Everything|The|What|Who|Any|Container|A|No)\b/.test(
    text,
  )
    ? text.charAt(0).toLowerCase() + text.slice(1)
    : text;
}

function capacitySection(stacks: readonly StackReview[], rung: Rung): readonly Block[] {
  const known = stacks.filter(({ capacity }) => capacity.before ?? capacity.after);
  if (known.length === 0) return [];
  const isOther = ({ capacity: { before, after } }: StackReview) => !sameValue(before, after);
  const most = rung.items === all ? all : Math.max(rung.items, rung.dangers);
  const kept = new Set(
    [...known.filter(isOther), ...known.filter((it) => !isOther(it))].slice(0, most),
  );
  const shown = known.filter((it) => kept.has(it));
  const left = known.filter((it) => !kept.has(it));
  const cell = (
    { capacity: { before, after } }: StackReview,
    text: (capacity: Capacity) => string | undefined,
    none = "none",
  ): Text => {
    const [was, is] = [before, after].map((it) => (it === undefined ? none : (text(it) ?? "–")));
    return was === is ? [is ?? ""] : [`${was} → `, { strong: is ?? "" }];
  };
  const rows = shown.map((stack): readonly Text[] => [
    [{ code: stack.stack }],
    cell(stack, ({ gpus }) => gpus),
    cell(stack, vramText),
    cell(stack, replicasText),
    cell(stack, ({ imagesPerSecond }) => imagesPerSecond?.toFixed(0)),
    cell(stack, ({ usdPerHour }) => usdPerHour?.toFixed(2), "0"),
    cell(
      stack,
      ({ usdPerHour: usd }) => (usd === undefined ? undefined : (usd * hoursPerMonth).toFixed(0)),
      "0",
    ),
    cell(stack, (capacity) => usdPerThousand(capacity)?.toFixed(5)),
  ]);
  const total = totalRow(known);
  return [
    { kind: "heading", level: 3, text: ["Capacity and money"] },
    {
      kind: "table",
      head: [
        ["environment"],
        ["GPUs"],
        ["VRAM used of usable, MiB"],
        ["replicas"],
        ["images/s"],
        ["$/hour"],
        [`$/month (${hoursPerMonth} h)`],
        ["$/1,000 images"],
      ],
      rows: [...rows, ...(total === undefined ? [] : [total])],
    },
    ...listOf(
      [...capacityNotes(shown), ...gapItems(stacks, "capacity and cost")],
      left.length,
      left.some(isOther)
        ? `${left.filter(isOther).length} of them have other capacities afterwards`
        : "none of them changes",
    ),
  ];
}

/** What each Triton runs: what is another in sight, the others folded. */
function servingSection(stacks: readonly StackReview[], rung: Rung): readonly Block[] {
  const all = stacks.flatMap(({ stack, serving }) => serving.map((it) => ({ stack, ...it })));
  const cell = (
    { before, after }: ServingChange,
    text: (serving: Serving) => string | undefined,
  ): Text => {
    const [was = "", is = ""] = [before ?? after, after ?? before].map((it) =>
      it === undefined ? "" : (text(it) ?? "not used"),
    );
    return was === is ? [is] : [`${was} → `, { strong: is }];
  };
  const fate = ({ before, after }: ServingChange): Text => {
    if (before === undefined) return [", ", { strong: "new" }];
    return after === undefined ? [", ", { strong: "gone" }] : [];
  };
  const table = (some: typeof all): Block => ({
    kind: "table",
    head: [["Triton"], ["image"], ["instances"], ["largest batch"], ["TensorRT"]],
    rows: some.map((it) => [
      [{ code: `${it.stack}: ${it.service}` }, ...fate(it)],
      cell(it, ({ image }) => image),
      cell(it, ({ instances }) => instances),
      cell(it, ({ maxBatch }) => (maxBatch === undefined ? undefined : String(maxBatch))),
      cell(it, ({ tensorrt }) => tensorrt),
    ]),
  });
  const others = all.filter(({ before, after }) => !sameValue(before, after));
  const same = all.filter((it) => !others.includes(it));
  return [
    ...(others.length === 0 ? [] : [table(others.slice(0, rung.items))]),
    ...listOf([], others.length - rung.items),
    ...(same.length === 0 || rung.creations === "counted"
      ? []
      : [
          {
            kind: "details" as const,
            summary: [
              `${same.length} ${same.length === 1 ? "Triton" : "Tritons"} with image, instances and TensorRT as before`,
            ],
            blocks: [table(same)],
          },
        ]),
  ];
}

function totalRow(stacks: readonly StackReview[]): readonly Text[] | undefined {
  const priced = stacks.filter(
    ({ capacity: { before, after } }) => (before?.usdPerHour ?? after?.usdPerHour) !== undefined,
  );
  if (priced.length < 2) return undefined;
  const sum = (moment: "before" | "after") =>
    priced.reduce((all, { capacity }) => all + (capacity[moment]?.usdPerHour ?? 0), 0);
  const cell = (digits: number, times: number): Text => {
    const [was, is] = [sum("before"), sum("after")].map((usd) => (usd * times).toFixed(digits));
    return was === is ? [is ?? ""] : [`${was} → `, { strong: is ?? "" }];
  };
  return [["all"], [""], [""], [""], [""], cell(2, 1), cell(0, hoursPerMonth), [""]];
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
  const without = new Map(
    capacities.filter((it) => it.imagesPerSecond === undefined).map((it) => [it.stack, it.gpus]),
  );
  const onCpu = [...without.values()].every((gpus) => gpus === "CPU");
  const dates = [
    ...new Set(capacities.flatMap(({ priceDate }) => (priceDate === undefined ? [] : [priceDate]))),
  ].sort();
  return [
    ...[...sources].map(
      ([source, names]): Text => [`images/s of ${few([...names])}: predicted, ${source}`],
    ),
    ...(without.size === 0
      ? []
      : [
          [
            `images/s of ${few([...without.keys()])}: not predicted${onCpu ? ", which is done for GPUs only" : ""}`,
          ],
        ]),
    ["VRAM is an estimate of the fullest GPU; usable is the part of it that models may plan with"],
    ...(dates.length === 0
      ? []
      : [[`prices are typical ones of the GPUs alone, seen in ${dates.join(" and ")}`]]),
  ];
}

function exposureSection(stacks: readonly StackReview[], rung: Rung): readonly Block[] {
  const exposed = stacks.flatMap(({ stack, exposures }) =>
    exposures.map((exposure) => ({ stack, ...exposure })),
  );
  const rank = { new: 0, gone: 1, unchanged: 2 };
  const sorted = exposed.sort((a, b) => rank[a.status] - rank[b.status]);
  const [first = undefined] = sorted;
  const heading: Block = { kind: "heading", level: 3, text: ["Exposure"] };
  if (first === undefined) {
    const examined = stacks.reduce((sum, { coverage: { resources, unexamined } }) => {
      return sum + resources - unexamined.filter((it) => it.topics.includes("exposure")).length;
    }, 0);
    const text =
      examined === 0
        ? "No resource was examined for exposure."
        : `Of the ${examined} resources examined, none publishes a port beyond loopback or its cluster, is privileged, or is set to run as root (steps that end before the services start excepted).`;
    return [heading, { kind: "text", text: [text] }, ...listOf(gapItems(stacks, "exposure"), 0)];
  }
  const row = ({ stack, status, who, what }: (typeof exposed)[number]): readonly Text[] => [
    [status === "unchanged" ? "as before" : { strong: status }],
    [{ code: stack }],
    [{ code: who }],
    [what],
  ];
  const fresh = sorted.filter(({ status }) => status === "new");
  const shown = [
    ...fresh.slice(0, rung.dangers),
    ...sorted.slice(fresh.length).slice(0, rung.items),
  ];
  const left = fresh.length - Math.min(fresh.length, rung.dangers);
  return [
    heading,
    { kind: "table", head: [["status"], ["stack"], ["who"], ["what"]], rows: shown.map(row) },
    ...listOf(
      [],
      sorted.length - shown.length,
      left === 0 ? "none of them new" : `${left} of them new`,
    ),
    ...listOf(gapItems(stacks, "exposure"), 0),
  ];
}

/** Resources that a statement of the comment does not cover. */
function gapItems(stacks: readonly StackReview[], topic: Topic): readonly Text[] {
  const all = stacks.flatMap(({ coverage }) => coverage.unexamined);
  return gapTexts(all, topic).map((text) => [text]);
}

function differenceSection(stacks: readonly StackReview[], rung: Rung): readonly Block[] {
  const blocks = stacks.flatMap(({ stack, changes }) => {
    const parts = changes
      .filter(({ diffs }) => diffs.length > 0)
      .filter(({ isStep, diffs }) =>
        rung.differences === "services" ? !isStep || hasTitle(diffs) : true,
      );
    const loud = [
      ...parts.filter(({ diffs }) => hasTitle(diffs)),
      ...parts.filter(({ isStep, diffs }) => !isStep && !hasTitle(diffs)),
    ];
    const quiet = parts.filter((part) => !loud.includes(part));
    const render = ({ title, diffs }: ReviewedChange): Block => ({ kind: "diff", title, diffs });
    return [
      ...(stacks.length > 1 && parts.length > 0 ? [heading4(stack)] : []),
      ...loud.map((part) =>
        render(
          part.isStep ? { ...part, diffs: part.diffs.filter(({ title }) => title !== "") } : part,
        ),
      ),
      ...(quiet.length === 0
        ? []
        : [
            {
              kind: "details" as const,
              summary: [
                `Differences of ${quiet.length} ${quiet.length === 1 ? "step" : "steps"} of the deployment`,
              ],
              blocks: quiet.map(render),
            },
          ]),
    ];
  });
  if (blocks.length === 0) return [];
  return [{ kind: "heading", level: 3, text: ["Differences"] }, ...blocks];
}

function hasTitle(diffs: readonly DiffBlock[]): boolean {
  return diffs.some(({ title }) => title !== "");
}

function ruleSection(
  stacks: readonly StackReview[],
  rung: Rung,
  rulesUrl: string | undefined,
): readonly Block[] {
  const findings = stacks.flatMap((stack) => stack.findings);
  if (findings.length === 0) return [];
  const order = ["error", "warning", "note"];
  const open = findings
    .filter(({ waived }) => waived === undefined)
    .sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
  const isNew = ({ severity, existing }: RuleFinding) => severity !== "note" && !existing;
  const fresh = open.filter(isNew);
  const errors = fresh.filter(({ severity }) => severity === "error");
  const warnings = fresh.filter(({ severity }) => severity === "warning");
  const loud = [...errors.slice(0, rung.dangers), ...warnings.slice(0, rung.items)];
  const left = [
    [errors.length - rung.dangers, "error"] as const,
    [warnings.length - rung.items, "warning"] as const,
  ].filter(([count]) => count > 0);
  const mark = { error: "⛔ error", warning: "⚠️ warning", note: "note" } as const;
  const rule = (id: string): Span =>
    rulesUrl === undefined ? { code: id } : { link: `${rulesUrl}${id}.md`, text: id };
  const row = (finding: RuleFinding): readonly Text[] => [
    [mark[finding.severity]],
    [rule(finding.rule)],
    [
      {
        code:
          finding.address === undefined ? finding.stack : `${finding.stack}: ${finding.address}`,
      },
    ],
    [finding.what],
    [finding.waived ?? finding.fix],
  ];
  const head = [["severity"], ["rule"], ["where"], ["what"], ["how to fix"]];
  const folded = (some: readonly RuleFinding[], summary: string, last: string): readonly Block[] =>
    some.length === 0
      ? []
      : [
          {
            kind: "details",
            summary: [summary],
            blocks: [
              {
                kind: "table",
                head: [...head.slice(0, 4), [last]],
                rows: some.slice(0, rung.items).map(row),
              },
              ...listOf([], some.length - rung.items),
            ],
          },
        ];
  const old = open.filter((it) => it.severity !== "note" && !isNew(it));
  const notes = open.filter(({ severity }) => severity === "note");
  const waived = findings.filter((it) => it.waived !== undefined);
  return [
    { kind: "heading", level: 3, text: ["Rules"] },
    ...(loud.length === 0
      ? [{ kind: "text" as const, text: ["No rule is broken by this change."] }]
      : [{ kind: "table" as const, head, rows: loud.map(row) }]),
    ...listOf(
      [],
      left.reduce((sum, [count]) => sum + count, 0),
      left.map(([count, what]) => `${count} ${what}${count === 1 ? "" : "s"}`).join(", "),
    ),
    ...folded(old, `${old.length} broken as before, not by this change`, "how to fix"),
    ...folded(notes, `${notes.length} ${notes.length === 1 ? "note" : "notes"}`, "how to fix"),
    ...folded(waived, `${waived.length} waived`, "reason"),
    ...listOf(
      gapTexts(
        stacks.flatMap(({ coverage }) =>
          coverage.unexamined.filter(({ topics }) => topics.includes("impact")),
        ),
        undefined,
        (count) => `${count === 1 ? "is" : "are"} not covered by the rules`,
      ).map((text) => [text]),
      0,
    ),
  ];
}

function driftSection(stacks: readonly StackReview[], rung: Rung): readonly Block[] {
  const drifts = stacks.flatMap(({ stack, drift }) => drift.map((it) => ({ stack, ...it })));
  if (drifts.length === 0) return [];
  return [
    { kind: "heading", level: 3, text: ["Changed outside of Terraform"] },
    ...listOf(
      drifts.slice(0, rung.items).map(
        ({ stack, address, action, diffs }): Text => [
          { strong: action === "delete" ? "gone" : "changed" },
          " ",
          { code: `${stack}: ${address}` },
          ...(diffs.length === 0
            ? []
            : [
                `: ${diffs
                  .flatMap(({ lines }) => lines.map(({ where }) => where))
                  .slice(0, 6)
                  .join(", ")}`,
              ]),
        ],
      ),
      drifts.length - rung.items,
    ),
  ];
}

function notKnownSection(stacks: readonly StackReview[], rung: Rung): readonly Block[] {
  const lines = [
    ...new Set(
      stacks.filter(({ source }) => source === "trees").flatMap(({ notKnown }) => notKnown),
    ),
  ];
  const ofPlans = stacks
    .filter(({ source }) => source === "plan")
    .flatMap(({ stack, notKnown }) => notKnown.map((line) => `${stack}: ${line}`));
  if (lines.length + ofPlans.length === 0) return [];
  return [
    ...(lines.length === 0
      ? []
      : [
          {
            kind: "details" as const,
            summary: ["What only a plan could tell"],
            blocks: [{ kind: "list" as const, items: lines.map((line) => [line]) }],
          },
        ]),
    ...listOf(
      ofPlans.slice(0, rung.items).map((line) => [line]),
      ofPlans.length - rung.items,
    ),
  ];
}
