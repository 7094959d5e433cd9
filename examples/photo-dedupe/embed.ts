import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { modelFile } from "../search/query-client.ts";
import { CommandError, type Progress, reasonOf } from "../search/report.ts";
import { readErrors } from "../search/table.ts";
import {
  embeddedImages,
  embeddingCount,
  imagesByUri,
  jobOf,
  type Weights,
  weightsSetting,
} from "./embeddings.ts";
import { openPhoto } from "./open-photo.ts";
import { type PhotoDatabase, writeSetting } from "./photo-database.ts";

export interface EmbedOptions {
  /** Name of the model's spec. */
  readonly model: string;
  /** Whether the embeddings of the model are computed again, for example with other weights. */
  readonly replace: boolean;
  /** As of `clipstack bulk run`. */
  readonly weights?: string;
  readonly precision?: string;
  readonly triton?: string;
  readonly workers?: number;
  readonly patience?: number;
  readonly progress: Progress;
}

/**
 * Embeds every content without an embedding by the model with `clipstack bulk`. A photo that cannot be decoded is reported.
 *
 * @throws {CommandError} if there are no photos, or `clipstack bulk` fails, as for other weights than those of the embeddings
 */
export async function embed(database: PhotoDatabase, options: EmbedOptions) {
  const { model, replace, progress } = options;
  const job = jobOf(database, model);
  await copyHeic(database, progress);
  const images = embeddedImages(database).filter(({ etag }) => etag !== "");
  if (images.length === 0) {
    throw new CommandError("failed", "no photos: run 'clipstack-dedupe scan' first");
  }
  if (replace) {
    await rm(job, { recursive: true, force: true });
    for (const table of ["pairs", "compared"]) {
      database.run(`DELETE FROM ${table} WHERE model = ?`, model);
    }
  }
  const before = await embeddingCount(database, model);
  const startedAt = performance.now();
  const list = join(job, "photos.csv");
  const lines = images.map(({ uri, etag }) => `"${uri.replaceAll('"', '""')}",${etag}\n`);
  await mkdir(job, { recursive: true });
  await writeFile(list, `uri,etag\n${lines.join("")}`);
  await bulk("plan", list, "--job", job, "--model", model);
  await bulk("run", job, ...runOptions(options));
  const weights = weightsOf(options);
  writeSetting(database, weightsSetting(model), weights);
  const embedded = (await embeddingCount(database, model)) - before;
  const failed = await reportFailures(database, job, progress);
  const imagesPerSecond = (1000 * embedded) / (performance.now() - startedAt);
  return { embedded, failed, weights, imagesPerSecond };
}

/** Shorter side of the copy: at least twice the input of every model of the catalogue. */
export const copySide = 512;

/** Makes a JPEG copy of each HEIC content, which workers cannot decode. */
async function copyHeic(database: PhotoDatabase, progress: Progress): Promise<void> {
  for (const { uri, path, etag } of embeddedImages(database)) {
    if (etag !== "") continue;
    progress.update(`converting ${path}`);
    await mkdir(dirname(uri), { recursive: true });
    try {
      const { image } = await openPhoto(await readFile(path));
      await image
        .flatten({ background: "white" })
        .resize(copySide, copySide, { fit: "outside", withoutEnlargement: true })
        .toColourspace("srgb")
        .jpeg({ quality: 95, chromaSubsampling: "4:4:4" })
        .toFile(`${uri}.draft`);
      await rename(`${uri}.draft`, uri);
    } catch (error) {
      database.run("UPDATE photos SET state = 'unreadable' WHERE path = ?", path);
      progress.note(`${path}: cannot be read: ${reasonOf(error)}`);
    }
  }
}

/** Reports the photos that a worker could not read. @returns Their number. */
async function reportFailures(database: PhotoDatabase, job: string, progress: Progress) {
  const byUri = imagesByUri(database);
  let failed = 0;
  for (const { uri, code, reason } of await readErrors(job)) {
    const image = byUri.get(uri);
    if (image === undefined) continue;
    failed++;
    // a photo that has changed or disappeared since the scan
    const isOutdated = ["changed", "missing", "denied"].includes(code);
    const text = isOutdated ? `${reason}: scan again` : `${image.path}: cannot be read: ${reason}`;
    progress.note(text);
    if (isOutdated) continue;
    database.run("UPDATE photos SET state = 'unreadable' WHERE sha256 = ?", image.sha256);
  }
  return failed;
}

function runOptions(options: EmbedOptions): readonly string[] {
  const names = ["weights", "precision", "triton", "workers", "patience"] as const;
  const given = names.flatMap((name) =>
    options[name] === undefined ? [] : [`--${name}`, String(options[name])],
  );
  // photos that cannot be read stop nothing
  return [...given, "--max-errors", "100"];
}

/** Weights of a file on this machine; those of a service are unknown. */
function weightsOf({ model, weights, triton }: EmbedOptions): Weights {
  if (triton !== undefined) return "unknown";
  if (weights === "tiny" || weights === "generated") return "random";
  const info = `${weights ?? modelFile(model)}.json`;
  const { source } = existsSync(info) ? JSON.parse(readFileSync(info, "utf8")) : {};
  return source === "generated" ? "random" : "unknown";
}

/** sharp's limit, for the embeddings as for the other steps. */
const maxPixels = 0x3fff ** 2;

/** Runs `clipstack bulk`, which prints its progress and the reason of a failure, and ends with this process. */
async function bulk(...args: readonly string[]): Promise<void> {
  const manifest = createRequire(import.meta.url).resolve("clipstack/package.json");
  const { bin } = JSON.parse(readFileSync(manifest, "utf8"));
  const defaults = { MAX_IMAGE_PIXELS: String(maxPixels), MODEL_REPOSITORY: "model_repository" };
  const child = spawn(process.execPath, [join(dirname(manifest), bin.clipstack), "bulk", ...args], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...defaults, ...process.env },
  });
  const [code] = await once(child, "close");
  const hint =
    "stopped, see the line above; if it names another fingerprint, embed all photos again with --replace";
  if (code === 2) throw new CommandError("usage", hint);
  if (code !== 0) throw new CommandError("failed", "stopped: run the same command again to resume");
}
