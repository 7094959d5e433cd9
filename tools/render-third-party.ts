import { readFileSync } from "node:fs";

/** Licences of production dependencies. A new one is added here once somebody has read it. */
const accepted = [
  "0BSD",
  "Apache-2.0",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "BlueOak-1.0.0",
  "CC0-1.0",
  "ISC",
  "LGPL-3.0", // linked dynamically or loaded as a module of its own: libheif
  "LGPL-3.0-or-later", // libvips
  "MIT",
  "MPL-2.0",
  "Public Domain",
  "Python-2.0",
  "Unlicense",
];

/** Licences that the lock file lacks, as their packages state them. */
const stated: Readonly<Record<string, string>> = { jstat: "MIT" };

interface Locked {
  readonly license?: string;
  readonly dev?: boolean;
  readonly link?: boolean;
}

/**
 * Renders docs/third-party.md: every production dependency of the packages and images, by licence.
 *
 * @throws {Error} if a package has no licence, or one that is not accepted
 */
export function thirdPartyPage(): string {
  const lock = readFileSync(new URL("../package-lock.json", import.meta.url), "utf8");
  const { packages }: { packages: Readonly<Record<string, Locked>> } = JSON.parse(lock);
  const rows = licenceRows(packages);
  return `<!-- Written by 'npm run render'. Do not edit. -->
# Third-party packages

Packages from npm that the published packages and images need at run time, by licence. The texts: in the folder of each installed package; for the compiled
server of the images in \`/app/dist/THIRD-PARTY-LICENSES.txt\`, and in \`/app/node_modules\` for its native libraries; for \`@clipstack/review\`, which
contains its packages, in \`THIRD-PARTY-LICENSES.txt\`. \`NOTICE\` lists files of others in our sources.

libvips (LGPL) is a shared library of its own in \`node_modules/@img\`, and can be replaced. The images also contain their base image: Debian and Node.js;
with CUDA, NVIDIA's image and ONNX Runtime's CUDA provider under NVIDIA's terms. Weights have [licences of their own](models.md).

| licence | packages |
| --- | --- |
${[...rows].map(([licence, names]) => `| ${licence} | ${names.join(", ")} |`).join("\n")}
`;
}

export function licenceRows(
  packages: Readonly<Record<string, Locked>>,
): ReadonlyMap<string, readonly string[]> {
  const rows = new Map<string, Set<string>>();
  for (const [path, { license, dev, link }] of Object.entries(packages)) {
    const name = path.split("node_modules/").at(-1)!;
    if (dev || link || !path.includes("node_modules/")) continue;
    const licence = (license ?? stated[name] ?? "").replace("Apache 2.0", "Apache-2.0");
    const unknown = licence
      .split(/ AND | OR |[()]/)
      .filter((each) => each !== "" && !accepted.includes(each));
    if (licence === "" || unknown.length > 0) {
      throw new Error(
        `${name} must have one of the licences ${accepted.join(", ")}, got '${licence}'`,
      );
    }
    rows.set(licence, (rows.get(licence) ?? new Set()).add(name));
  }
  return new Map(
    [...rows]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([licence, names]) => [licence, [...names].sort()]),
  );
}
