import { dirname, join, relative } from "node:path";
import { ensureU8Model } from "../../inference-image/src/model/derive.ts";
import { repositoryModel } from "../../inference-image/src/model/generate.ts";
import type { ModelInfo } from "../../inference-image/src/model/model-info.ts";
import { preparedFolder, prepareInto } from "../../inference-image/src/model/prepare.ts";
import { repositoryU8Model } from "../../inference-image/src/model/repository.ts";
import { UserError } from "./user-error.ts";

/** What the `model` commands have in common. */

/** What goes wrong with the files that were named is the user's to mend. */
export async function ofFiles<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new UserError((error as Error).message.replace(/^\[\w+\] /, ""), { cause: error });
  }
}

export function shownPath(file: string): string {
  return relative("", file).startsWith("..") ? file : relative("", file);
}

export function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}

export function shownCosine(value: number): string {
  return value.toFixed(7);
}

export function reportDerived(file: string, info: ModelInfo): void {
  console.log(`${shownPath(file)}: ${megabytes(info.bytes)} MB, sha256 ${info.sha256}`);
  console.log(`Made of ${info.derivedFrom}: ${info.parts?.join(", ")}.`);
}

/** What else the repository holds of the same weights: the model with pixels as input, and the embed server's form. */
export async function deriveOfRepository(
  args: { readonly json?: boolean },
  file: string,
): Promise<void> {
  if (file !== repositoryModel) return;
  const folder = join(dirname(file), preparedFolder);
  const { modelPath } = await ofFiles(prepareInto(folder, { modelPath: file }));
  if (!args.json) console.log(`${shownPath(modelPath)}: the form that the embed server runs`);
  const info = await ofFiles(ensureU8Model(file, repositoryU8Model));
  if (!args.json && info.source === "derived") reportDerived(repositoryU8Model, info);
}
