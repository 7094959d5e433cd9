import { cpSync, existsSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** Folder of this package, with a slash at its end: the root of the checkout, or of the installed package `clipstack`. Read-only. */
export const packageFolder = fileURLToPath(new URL("../../", import.meta.url));

/** Whether the code runs from its TypeScript sources in a checkout, and not from the installed package. */
export const isCheckout = import.meta.url.endsWith(".ts");

/**
 * Folder of the user's project, with `environments`, `model_repository` and `cdktf.out`: the checkout; with the installed package, the
 * nearest folder with a `cdktf.json`, otherwise the working directory.
 */
export const projectFolder = isCheckout ? packageFolder : nearestProject(process.cwd());

/** Model repository of the project, with `<model>/1/model.onnx`. */
export const projectRepository = join(projectFolder, "model_repository");

/** Folder of records and reports. */
export const reportsFolder = join(projectFolder, "bench/reports");

/** Path of a file or folder of the package, relative to the project, as it appears in a synthesized stack. */
export function packagedPath(path: string): string {
  return join(relative(projectFolder, packageFolder), path);
}

/**
 * Arguments with which Node runs a program of this package.
 *
 * @param path - Path of the program without extension: `inference-image/main`.
 * @param folder - Another checkout.
 */
export function nodeProgram(path: string, folder = packageFolder): readonly string[] {
  return isCheckout
    ? ["--import", import.meta.resolve("tsx"), join(folder, `${path}.ts`)]
    : [join(folder, `${path}.js`)];
}

/** Version of this package. */
export function packageVersion(): string {
  return JSON.parse(readFileSync(join(packageFolder, "package.json"), "utf8")).version;
}

/**
 * Copies the files of the package's model repository, such as Dockerfiles and configurations, into that of the project, in which images
 * with weights are built. Weights and other files there are kept.
 */
export function copyModelRepository(): void {
  if (isCheckout) return;
  cpSync(join(packageFolder, "model_repository"), projectRepository, { recursive: true });
}

function nearestProject(folder: string): string {
  const start = resolve(folder);
  for (let current = start; ; current = dirname(current)) {
    if (existsSync(join(current, "cdktf.json"))) return current;
    if (dirname(current) === current) return start;
  }
}
