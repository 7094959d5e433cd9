import type { Dirent } from "node:fs";
import { opendir } from "node:fs/promises";
import { extname, join } from "node:path";
import { pathProblem } from "./dedupe-error.ts";
import { readsHeic } from "./heic.ts";

/** Folder that rejected photos are moved into; it is never scanned. */
export const rejectedFolderName = "clipstack-rejected";

export type Found =
  | { readonly kind: "photo"; readonly path: string }
  /** A photo that this build cannot decode. */
  | { readonly kind: "heic"; readonly path: string }
  /** A link: what it points to is not a second photo, and may be a folder above. */
  | { readonly kind: "link"; readonly path: string }
  | { readonly kind: "closed-folder"; readonly path: string; readonly problem: string };

const photoExtensions = new Set([".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp"]);
const heicExtensions = new Set([".heic", ".heif", ".hif"]);

/**
 * Every photo under a folder, by its extension, as a stream: no folder is held in memory whole. Links are not followed. A
 * folder that cannot be read is reported and passed over.
 */
export async function* walkPhotos(folder: string): AsyncGenerator<Found> {
  const waiting = [folder];
  for (let current = waiting.pop(); current !== undefined; current = waiting.pop()) {
    try {
      for await (const entry of await opendir(current)) {
        const path = join(current, entry.name);
        if (entry.isDirectory()) {
          if (entry.name !== rejectedFolderName) waiting.push(path);
          continue;
        }
        const found = kindOf(entry);
        if (found !== undefined) yield { kind: found, path };
      }
    } catch (error) {
      yield { kind: "closed-folder", path: current, problem: pathProblem(current, error) };
    }
  }
}

function kindOf(entry: Dirent): "photo" | "heic" | "link" | undefined {
  const extension = extname(entry.name).toLowerCase();
  const heic = heicExtensions.has(extension);
  if (!heic && !photoExtensions.has(extension)) return undefined;
  if (entry.isSymbolicLink()) return "link";
  if (!entry.isFile()) return undefined;
  return heic && !readsHeic ? "heic" : "photo";
}
