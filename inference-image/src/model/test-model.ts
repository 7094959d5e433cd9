import { ensureTinyModel } from "./generate.ts";

let path: Promise<string> | undefined;

/** Path of the tiny model, for tests: made once, shared by all. Same signature as the full-size model. */
export function tinyModel(): Promise<string> {
  path ??= ensureTinyModel();
  return path;
}
