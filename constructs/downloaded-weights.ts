import type { Finding } from "./checks/findings.ts";
import { type ServedTower, tokenizerFile } from "./served-towers.ts";

/** Weights that a deployment downloads by URL, in clusters and on Docker hosts. */

/** File that is downloaded and verified. */
export interface DownloadedFile {
  readonly url: string;
  readonly sha256: string;
}

/** Files of a tower, and of its tokenizer if that is a file. */
export interface TowerDownload extends DownloadedFile {
  readonly tokenizer?: DownloadedFile;
}

/** Files of a tower on a Docker host. */
export interface HostDownload extends TowerDownload {
  /**
   * File in half precision, which TensorRT 11 requires for FP16.
   *
   * @default - none
   */
  readonly tensorrt?: DownloadedFile;
}

/** Entries for several towers, by name: `dinov2-small:image`, `openclip-vit-b32:text`. */
export type ByTower<File> = Readonly<Record<string, File>>;

/** Name of a tower in settings: `dinov2-small:image`. */
export function towerName({ spec, modality }: ServedTower): string {
  return `${spec.name}:${modality}`;
}

/** Rejects entries for other towers than the served ones. */
export function unknownTowerFindings(
  path: string,
  entries: ByTower<unknown>,
  towers: readonly ServedTower[],
): readonly Finding[] {
  const names = towers.map(towerName);
  return Object.keys(entries)
    .filter((name) => !names.includes(name))
    .map((name) => ({ path, must: `have entries for ${names.join(", ")} only`, got: `'${name}'` }));
}

/**
 * Rejects towers without their files, and a tokenizer of a tower that reads none.
 *
 * @param isComplete - Whether a tower without an entry has its weights from elsewhere.
 */
export function downloadFindings(
  path: string,
  entries: ByTower<TowerDownload>,
  towers: readonly ServedTower[],
  isComplete = false,
): readonly Finding[] {
  return towers.flatMap((tower) => {
    const own = `${path}.${towerName(tower)}`;
    const entry = entries[towerName(tower)];
    const file = tokenizerFile(tower);
    if (!isComplete && entry === undefined) {
      return [{ path: own, must: "have the url and sha256 of the weights", got: "nothing" }];
    }
    if ((entry?.tokenizer !== undefined) === (file !== undefined)) return [];
    const must =
      file === undefined
        ? "be omitted, because the tower has no tokenizer file"
        : `have the url and sha256 of ${file}`;
    const got = file === undefined ? "a file" : "nothing";
    return [{ path: `${own}.tokenizer`, must, got }];
  });
}
