import { formatNumber } from "../bench/capacity/capacity-format.ts";
import { formatError } from "../lab/capacity/calibration-text.ts";
import { checkPublished } from "../lab/capacity/check.ts";
import type { Figure, PublishedFile } from "../lab/capacity/published.ts";
import { publishedFacts } from "../lab/capacity/table.ts";

/** Sections of the page, with the files of `lab/published`. Files that are not listed are in the last section. */
const sections: readonly (readonly [title: string, ids: readonly string[]])[] = [
  [
    "The application's own service on rented GPUs",
    [
      "rtx-a4000-remote",
      "rtx-a4000-server",
      "a100-remote",
      "a100-protocols",
      "rtx-4080-remote",
      "rtx-4080-x4-remote",
      "rtx-4090-protocols",
      "serialization",
      "operators",
      "cost",
    ],
  ],
  [
    "Other systems",
    ["triton-tutorial", "clip-retrieval", "clip-retrieval-a100", "clip-as-service", "model-only"],
  ],
  ["Measured by clipstack", []],
];

const places = {
  remote: "one client, over the internet",
  local: "client on the server's host",
  server: "in the server",
  client: "in the client",
  derived: "derived from other figures",
  "data sheet": "derived from data sheets",
} as const;

const line = (cells: readonly unknown[]) => `| ${cells.join(" | ")} |`;

/** Page of the documentation with setup, figures, finding and advice of each published experiment. */
export function resultsDocs(): string {
  const facts = publishedFacts();
  const { published } = facts;
  const listed = new Set(sections.flatMap(([, ids]) => ids));
  const others = [...published.keys()].filter((id) => !listed.has(id));
  const predictions = new Map(checkPublished(facts).map((row) => [row.figure, row]));
  const chapters = sections.map(([title, ids]) => {
    const files = [...ids, ...(ids.length === 0 ? others : [])].flatMap(
      (id) => published.get(id) ?? [],
    );
    return { title, files };
  });
  return [
    "# Published results",
    "",
    "Every experiment of `lab/published`, rendered from the data by `npm run render`: setup, figures, finding and advice. The model is OpenCLIP",
    'ViT-B/32 unless stated. The *PyTorch FastAPI service* ran the model with PyTorch on the GPU and accepted JPEGs; the sources call it "embed", and it',
    "is not this project's embed server. *Model* is the prediction of [`clipstack capacity`](capacity.md) for figures that do not calibrate it.",
    "",
    line(["experiment", "finding", "advice"]),
    line(["---", "---", "---"]),
    ...chapters.flatMap(({ files }) =>
      files.map(({ title, finding = "", advice = "" }) =>
        line([`[${title}](#${anchor(title)})`, finding, advice]),
      ),
    ),
    "",
    "[Choosing a backend](guides/choosing-a-backend.md) combines the advice. Your GPU, link and images differ: measure with `npx clipstack bench`.",
    ...chapters.flatMap(({ title, files }) => [
      "",
      `## ${title}`,
      ...files.flatMap((file) => ["", ...experiment(file, predictions)]),
    ]),
    "",
  ].join("\n");
}

/** Anchor of a heading, as GitHub derives it. */
function anchor(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replaceAll(" ", "-");
}

type Predictions = ReadonlyMap<string, ReturnType<typeof checkPublished>[number]>;

function experiment(file: PublishedFile, predictions: Predictions): readonly string[] {
  const { id, title, source, missing, figures, finding, advice } = file;
  const name = source.url === undefined ? source.name : `[${source.name}](${source.url})`;
  const rows = figures.map((figure) => {
    const { role, predicted, error } = predictions.get(`${id}/${figure.id}`) ?? {};
    const isPredicted = role === "predicted" && predicted !== undefined;
    return { figure, predicted: isPredicted ? predicted : undefined, error };
  });
  const hasModel = rows.some(({ predicted }) => predicted !== undefined);
  return [
    `### ${title}`,
    "",
    `Setup: ${setup(file)}. Source: ${name}, seen ${source.seen}; data: [${id}.json](../lab/published/${id}.json).`,
    ...(missing.length === 0 ? [] : ["", `Not stated: ${missing.join("; ")}.`]),
    "",
    line(["figure", "published", ...(hasModel ? ["model", "error"] : [])]),
    line(["---", "---", ...(hasModel ? ["---", "---"] : [])]),
    ...rows.map(({ figure, predicted, error }) =>
      line([
        figure.label,
        publishedText(figure),
        ...(hasModel
          ? predicted === undefined
            ? ["", ""]
            : [formatNumber(predicted), formatError(error)]
          : []),
      ]),
    ),
    ...(finding === undefined ? [] : ["", `**Finding.** ${finding}`]),
    ...(advice === undefined ? [] : ["", `**Advice.** ${advice}`]),
  ];
}

function setup({ setting }: PublishedFile): string {
  const { place, gpu, gpus = 1, topology, iterations, model, request, processor, cores } = setting;
  return [
    places[place],
    ...(gpu === undefined ? [] : [gpus === 1 ? gpu : `${gpus} × ${gpu}`]),
    ...(topology === undefined ? [] : [`topology ${topology}`]),
    ...(processor === undefined ? [] : [processor]),
    ...(cores === undefined ? [] : [`${cores} cores`]),
    ...(iterations === undefined
      ? []
      : [`${iterations} ${place === "server" ? "rounds" : "iterations"}`]),
    ...(model === undefined ? [] : [model]),
    ...(request === undefined ? [] : [request]),
  ].join(", ");
}

function publishedText({ value, range, unit }: Figure): string {
  const text = range === undefined ? String(value) : range.join("-");
  return `${text} ${unit}`;
}
