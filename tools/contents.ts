/** Table of contents of the documentation: the tables of `docs/README.md`, which the sidebar of the site and `llms.txt` repeat. */

export interface Entry {
  readonly name: string;
  /** Path of the page, relative to the repository. */
  readonly path: string;
  readonly about: string;
}

export interface Section {
  readonly title: string;
  readonly entries: readonly Entry[];
}

/** Sections of `docs/README.md` that have a table of pages. */
export function contentsOf(text: string): readonly Section[] {
  return text
    .split(/^## /m)
    .slice(1)
    .map((section) => {
      const [title = "", ...lines] = section.split("\n");
      return { title, entries: lines.flatMap(entriesOf) };
    })
    .filter(({ entries }) => entries.length > 0);
}

function entriesOf(line: string): readonly Entry[] {
  const [, first = "", second = ""] = /^\| (.*?) \| (.*) \|$/.exec(line) ?? [];
  const [pages, about] = /\]\(/.test(first) ? [first, second] : [second, first];
  return [...pages.matchAll(/\[([^\]]+)\]\(([^)#]+)[^)]*\)/g)].map(([, name = "", path = ""]) => ({
    name: plain(name),
    path: new URL(path, "file:///docs/").pathname.slice(1),
    about: plain(about),
  }));
}

/** Text without links and code marks. */
function plain(text: string): string {
  return text.replace(/\[([^\]]+)\]\([^)]*\)/g, "$1").replaceAll("`", "");
}
