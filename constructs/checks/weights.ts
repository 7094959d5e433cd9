import type { ServerSettings } from "../../contract/server/server-settings.ts";
import { type ByTower, type TowerDownload, towerName } from "../models/downloaded-weights.ts";
import { type FileKind, type ServedTower, tokenizerFile } from "../models/served-towers.ts";
import { finding, findingIf } from "./findings.ts";

/** Rejects a Triton server that would load every model of an image with weights, and versions that it could not load. */
export function weightsFindings(
  weights: "volume" | "host-path" | "image" | "url",
  modelControl: "none" | "explicit" | "open",
  modelVersions?: number,
): readonly string[] {
  const versions = `${modelVersions}`;
  return [
    ...findingIf(
      weights === "image" && modelControl === "none",
      "modelControl",
      "be explicit when weights is image, or Triton loads every model that the image has",
      "'none'",
    ),
    ...findingIf(
      weights === "image" && modelVersions !== undefined,
      "modelVersions",
      "not be set when weights is image, because an image has one version",
      versions,
    ),
    ...findingIf(
      modelControl === "none" && modelVersions !== undefined,
      "modelVersions",
      "not be set when modelControl is none, because a running Triton then loads no version",
      versions,
    ),
  ];
}

/** Setting that selects the backend of a server, its value, and the value with which the server reads u8 files. */
export type BackendForU8 = readonly [setting: string, value: string, readsU8: string];

/** Rejects u8 files for servers that do not read them: TensorRT, and ONNX Runtime in the embed server. */
export function u8FileFindings(
  setting: string,
  modelKind: FileKind | undefined,
  backends: readonly BackendForU8[],
): readonly string[] {
  const rule = backends.map(([backend, , readsU8]) => `${backend} is ${readsU8}`).join(" and ");
  return findingIf(
    modelKind === "u8" && backends.some(([, value, readsU8]) => value !== readsU8),
    setting,
    `be fp32 unless ${rule}`,
    "'u8'",
  );
}

/** Rejects a precision whose files the source of the weights does not contain. */
export function precisionFindings(
  { modelPrecision: precision = "fp32" }: ServerSettings = {},
  source: "volume" | "host-path" | "image" | "url" | "pvc" | "init",
): readonly string[] {
  const folder = source === "init" ? "pvc" : "host-path";
  return findingIf(
    precision !== "fp32" && (source === "volume" || source === "url" || source === "init"),
    "server.modelPrecision",
    `be fp32 when weights is ${source}: with ${folder} or image, the file of the precision is beside model.onnx`,
    `'${precision}'`,
  );
}

/** Rejects entries for other towers than the served ones. */
export function unknownTowerFindings(
  path: string,
  entries: ByTower<unknown>,
  towers: readonly ServedTower[],
): readonly string[] {
  const names = towers.map(towerName);
  return Object.keys(entries)
    .filter((name) => !names.includes(name))
    .map((name) => finding(path, `have entries for ${names.join(", ")} only`, `'${name}'`));
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
): readonly string[] {
  return towers.flatMap((tower) => {
    const own = `${path}.${towerName(tower)}`;
    const entry = entries[towerName(tower)];
    const file = tokenizerFile(tower);
    if (!isComplete && entry === undefined) {
      return [finding(own, "have the url and sha256 of the weights", "nothing")];
    }
    if ((entry?.tokenizer !== undefined) === (file !== undefined)) return [];
    const must =
      file === undefined
        ? "be omitted, because the tower has no tokenizer file"
        : `have the url and sha256 of ${file}`;
    const got = file === undefined ? "a file" : "nothing";
    return [finding(`${own}.tokenizer`, must, got)];
  });
}
