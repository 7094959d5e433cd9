import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { publishedModel } from "../../bench/capacity/service-times.ts";
import { payloadFormats, serializations } from "../../contract/bench-endpoint.ts";
import { endpointNames } from "../../contract/environment.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { parseAs, parseJson } from "../../contract/parse.ts";
import { UserError } from "../../contract/user-error.ts";

/** Published third-party figures, used to calibrate and evaluate the model. */

export const publishedTower = imageTowerOf(publishedModel);

export const quantities = [
  "latency",
  "throughput",
  "requests",
  "server",
  "compute",
  "input",
  "ingest",
  "gateway",
  "queue",
  "overhead",
  "network",
  "encode",
  "decode",
  "bytes",
  "start",
  "vram",
  "share",
  "ratio",
  "concurrency",
  "count",
  "price",
  "cost",
  "work",
  "peak",
] as const;

/**
 * Use of a figure in the capacity model.
 *
 * - `calibrates`: sets a parameter.
 * - `round-trip`: sets the round trip of its setting; one per setting.
 * - `gpu-compute`, `setting-compute`: compute of one image, for its GPU or for its setting alone.
 * - `read`: used as it is.
 */
const figureRoles = ["calibrates", "round-trip", "gpu-compute", "setting-compute", "read"] as const;
type FigureRole = (typeof figureRoles)[number];

const publishedLoad = z.strictObject({
  /** `pytorch-http`: a FastAPI service that ran the model with PyTorch on the GPU and took JPEGs; not this project's embed server. */
  endpoint: z.enum(endpointNames),
  payload: z.enum(payloadFormats),
  serialization: z.enum(serializations),
  imagesPerRequest: z.int().min(1),
  /** Number of closed-loop clients. */
  concurrency: z.int().min(1),
  /** Fields not stated by the source. */
  assumed: z.array(z.enum(["endpoint", "imagesPerRequest", "concurrency"])).optional(),
});
export type PublishedLoad = z.infer<typeof publishedLoad>;

const figure = z
  .strictObject({
    /** Unique in its file. */
    id: z.string().regex(/^[a-z0-9-]+$/),
    label: z.string(),
    quantity: z.enum(quantities),
    /**
     * Use of the figure in the capacity model.
     *
     * @default - compared with the prediction, if the model predicts the quantity; a `peak` or a
     * `price` is an input
     */
    role: z.enum(figureRoles).optional(),
    unit: z.string(),
    /** Published value with its precision. */
    value: z.number().optional(),
    /** Published range. */
    range: z.tuple([z.number(), z.number()]).optional(),
    statistic: z.enum(["p50", "p95"]).optional(),
    load: publishedLoad.optional(),
    /** Value of each round of a measurement; `value` is their median. */
    rounds: z.array(z.number()).min(1).optional(),
    /** Size of the image file. */
    bytes: z.int().min(1).optional(),
    /** Cores of the measured process. */
    cores: z.int().min(1).optional(),
    /** Number of GPUs, if different from the setting's. */
    gpus: z.int().min(1).optional(),
    /** Key of a GPU, if different from the setting's. */
    gpu: z.string().optional(),
    /** Formula from other figures. */
    derived: z.string().optional(),
    /** Comment on the figure or its difference from the prediction. */
    note: z.string().optional(),
  })
  .refine(({ value, range }) => (value === undefined) !== (range === undefined), {
    message: "must have a value or a range",
  });
export type Figure = z.infer<typeof figure>;

const publishedFile = z.strictObject({
  /** Bumped when a field changes meaning. */
  schema: z.literal(1),
  id: z.string().regex(/^[a-z0-9-]+$/),
  title: z.string(),
  source: z.strictObject({
    name: z.string(),
    url: z.url().optional(),
    /** Month of access. */
    seen: z.string().regex(/^\d{4}-\d{2}$/),
  }),
  setting: z.strictObject({
    /** Location of the client: `remote` over the internet, `local` on the server's host. */
    place: z.enum(["remote", "local", "server", "client", "derived", "data sheet"]),
    gpu: z.string().optional(),
    gpus: z.int().min(1).optional(),
    topology: z.enum(["instance-group", "per-gpu"]).optional(),
    iterations: z.int().optional(),
    processor: z.string().optional(),
    /** Cores of the host. */
    cores: z.int().min(1).optional(),
    /** Processes per GPU that decode images. */
    decodeWorkers: z.int().min(1).optional(),
    model: z.string().optional(),
    /** Request of the load, if different from the other files. */
    request: z.string().optional(),
  }),
  /** Information missing from the source, and the assumption used instead. */
  missing: z.array(z.string()),
  /** Result of the experiment, for docs/results.md. */
  finding: z.string().optional(),
  /** Advice that follows from it. */
  advice: z.string().optional(),
  figures: z.array(figure).min(1),
});
export type PublishedFile = z.infer<typeof publishedFile>;

const publishedFolder = fileURLToPath(new URL("../published/", import.meta.url));

/** Reads all files of published figures, by id. */
export function readPublished(folder = publishedFolder): ReadonlyMap<string, PublishedFile> {
  const files = readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .sort()
    .map((name) => parsePublished(readFileSync(join(folder, name), "utf8"), name));
  return new Map(files.map((file) => [file.id, file]));
}

/** Parses one file; see {@link readPublished}. */
export function parsePublished(text: string, fileName: string): PublishedFile {
  return checked(parseAs(publishedFile, parseJson(text, fileName), fileName), fileName);
}

function checked(file: PublishedFile, fileName: string): PublishedFile {
  if (`${file.id}.json` !== fileName) {
    throw new UserError(`${fileName}: id must be the file's name, got '${file.id}'`);
  }
  const ids = file.figures.map(({ id }) => id);
  const duplicate = ids.find((id, index) => ids.indexOf(id) !== index);
  if (duplicate !== undefined)
    throw new UserError(`${fileName}: figure ids must be unique, got '${duplicate}' twice`);
  return file;
}

export function figuresOf(
  published: ReadonlyMap<string, PublishedFile>,
  role: FigureRole,
): readonly { readonly file: PublishedFile; readonly figure: Figure; readonly name: string }[] {
  return [...published.values()].flatMap((file) =>
    file.figures
      .filter((figure) => figure.role === role)
      .map((figure) => ({ file, figure, name: `${file.id}/${figure.id}` })),
  );
}

export function publishedFigure(
  published: ReadonlyMap<string, PublishedFile>,
  name: string,
): Figure {
  const [file = "", id = ""] = name.split("/");
  const found = published.get(file)?.figures.find((figure) => figure.id === id);
  if (found === undefined) throw new UserError(`published figure '${name}' is missing`);
  return found;
}

/** Value of a figure; the middle of a range. */
export function publishedValue(
  published: ReadonlyMap<string, PublishedFile>,
  name: string,
): number {
  const { value, range: [low, high] = [0, 0] } = publishedFigure(published, name);
  return value ?? (low + high) / 2;
}
