import { findingIf } from "../checks/findings.ts";
import { downloadFindings, unknownTowerFindings } from "../checks/weights.ts";
import {
  type ByTower,
  type DownloadedFile,
  type TowerDownload,
  towerName,
} from "../models/downloaded-weights.ts";
import { type ServedTower, tokenizerFile } from "../models/served-towers.ts";

/** Sources of the weights of the models in a cluster. */

/** File of a tower on a volume. */
export interface VolumeFile {
  /**
   * Folder of `model.onnx` on the volume.
   *
   * @default - `<tower>/1` in `towers`, as in a model repository; otherwise the root of the volume
   */
  readonly folder?: string;
  /**
   * SHA-256 of `model.onnx`.
   *
   * @default - not verified
   */
  readonly sha256?: string;
}

/** Source of the weights. */
export type ClusterWeights =
  /** Included in the images. With `sha256`, each Triton pod verifies the file that it loads. */
  | (Pick<VolumeFile, "sha256"> & {
      readonly weights: "image";
      /**
       * Checksums by tower.
       *
       * @default - one tower, which `sha256` describes
       */
      readonly towers?: ByTower<Pick<VolumeFile, "sha256">>;
    })
  /** Stored on a volume. */
  | (VolumeFile & {
      readonly weights: "pvc";
      /** Existing PersistentVolumeClaim. */
      readonly claim: string;
      /**
       * Files of towers. A tower without an entry has the default folder.
       *
       * @default - one tower, which `folder` and `sha256` describe, or several in their default folders
       */
      readonly towers?: ByTower<VolumeFile>;
    })
  /** Downloaded by each pod when it starts. */
  | (Partial<DownloadedFile> & {
      readonly weights: "init";
      /**
       * Files of each tower, and of its tokenizer if that is a file.
       *
       * @default - one tower, which `url` and `sha256` describe
       */
      readonly towers?: ByTower<TowerDownload>;
    });

/** Files of one tower. */
export interface TowerFiles extends VolumeFile, Partial<DownloadedFile> {
  readonly tokenizer?: Partial<DownloadedFile> & { readonly file: string };
}

/**
 * Returns the files of a tower; only a checksum if the images contain them.
 *
 * @param repositoryFolder - Folder of the tower in a model repository.
 * @param isOnly - Whether no other tower is served.
 */
export function towerFiles(
  model: ClusterWeights,
  tower: ServedTower,
  repositoryFolder: string,
  isOnly: boolean,
): TowerFiles {
  const only = isOnly && model.towers === undefined;
  if (model.weights === "image") {
    return { sha256: only ? model.sha256 : model.towers?.[towerName(tower)]?.sha256 };
  }
  const file = tokenizerFile(tower);
  if (model.weights === "pvc") {
    const { folder, sha256 }: VolumeFile = only
      ? model
      : { folder: `${repositoryFolder}/1`, ...model.towers?.[towerName(tower)] };
    return { folder, sha256, ...(file !== undefined && { tokenizer: { file } }) };
  }
  const entry = model.towers?.[towerName(tower)];
  const { url, sha256 }: Partial<DownloadedFile> = only ? model : (entry ?? {});
  return { url, sha256, ...(file !== undefined && { tokenizer: { file, ...entry?.tokenizer } }) };
}

/** Findings about the files of the towers. */
export function towerFilesFindings(
  model: ClusterWeights,
  towers: readonly ServedTower[],
): readonly string[] {
  const isSource = model.towers === undefined && towers.length === 1;
  return [
    ...(isSource ? [] : ownFileFindings(model)),
    ...unknownTowerFindings("model.towers", model.towers ?? {}, towers),
    ...(model.weights === "init"
      ? [
          ...(["url", "sha256"] as const).flatMap((key) =>
            findingIf(
              isSource && model[key] === undefined,
              `model.${key}`,
              `be ${key === "url" ? "the address" : "the SHA-256"} of the ONNX file that the pods download (weights: init)`,
              "nothing",
            ),
          ),
          ...downloadFindings("model.towers", model.towers ?? {}, towers, isSource),
        ]
      : []),
  ];
}

/** Rejects a file that does not name its tower. */
function ownFileFindings(model: object): readonly string[] {
  return ["folder", "url", "sha256"].flatMap((key) => {
    const value = Reflect.get(model, key);
    return findingIf(
      value !== undefined,
      `model.${key}`,
      "be in model.towers, by the name of its tower",
      `'${value}'`,
    );
  });
}
