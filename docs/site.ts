import { existsSync, readFileSync, statSync } from "node:fs";
import { posix } from "node:path";
import { fileURLToPath } from "node:url";
import release from "../contract/release.json" with { type: "json" };
import { contentsOf } from "../tools/contents.ts";

/** Links and sidebar of the documentation site, which is built from the Markdown files of the repository as they are. */

const root = fileURLToPath(new URL("../", import.meta.url));

const owner = release.registry.slice(release.registry.lastIndexOf("/") + 1);

/** Address of the source repository. */
export const repository = `https://github.com/${owner}/clipstack`;

/** Files that are pages of the site: the documentation, the README of each package, and the texts for contributors. */
const pagePattern =
  /^(CHANGELOG|CONTRIBUTING|SECURITY)\.md$|^docs\/.*\.md$|^(?!\.)(.*\/)?README\.md$/;

export const isPage = (path: string) => pagePattern.test(path);

/** Path of a page on the site: the README of a folder is its index. */
export const sitePath = (path: string) => path.replace(/(^|\/)README\.md$/, "$1index.md");

/**
 * Target of a link on the site.
 *
 * @param page - Path of the page with the link, relative to the repository.
 * @throws Error if the target is a path that does not exist.
 */
export function siteTarget(page: string, target: string): string {
  if (/^([a-z]+:|#)/.test(target)) return target;
  const [, file = "", anchor = ""] = /^([^#]*)(#.*)?$/.exec(target) ?? [];
  const path = posix.join(posix.dirname(page), file).replace(/\/$/, "");
  if (!existsSync(root + path)) throw new Error(`${page}: dead link to ${target}`);
  if (isPage(path)) return `/${sitePath(path)}${anchor}`;
  const kind = statSync(root + path).isDirectory() ? "tree" : "blob";
  return `${repository}/${kind}/main/${path}${anchor}`;
}

/** Sidebar: the sections and pages of `docs/README.md`. */
export function sidebar() {
  return contentsOf(readFileSync(`${root}docs/README.md`, "utf8")).map(({ title, entries }) => ({
    text: title,
    items: entries.map(({ name, path }) => ({
      text: titleOf(name),
      link: `/${sitePath(path).replace(/(index)?\.md$/, "")}`,
    })),
  }));
}

/** `the quick start` as `Quick start`. */
const titleOf = (name: string) =>
  name.replace(/^(the|an?) /, "").replace(/^\w/, (letter) => letter.toUpperCase());
