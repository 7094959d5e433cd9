import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Returns the licences of the packages with these bundled files.
 *
 * @param {readonly string[]} files - Paths relative to `folder`; those outside of packages are omitted.
 */
export function licencesOf(files, folder) {
  const packages = files.flatMap(
    (file) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? [],
  );
  return [...new Set(packages)]
    .map((path) => licenceOf(join(folder, path)))
    .sort()
    .join(`\n${"-".repeat(80)}\n\n`);
}

function licenceOf(path) {
  const { name, version, license } = JSON.parse(readFileSync(join(path, "package.json"), "utf8"));
  const file = readdirSync(path).find((entry) => /^licen[cs]e/i.test(entry));
  if (file === undefined && license === undefined) throw new Error(`${name} has no licence`);
  const text = file === undefined ? "" : readFileSync(join(path, file), "utf8");
  return `${name} ${version}: ${license}\n\n${text}`;
}
