import type { ServedTower } from "./served-towers.ts";

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
