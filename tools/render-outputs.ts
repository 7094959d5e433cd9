import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { RenderedFile } from "./rendered-file.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const pages = ["docs/capacity.md", "docs/guides/cost.md"];

/** An `sh` block with one command of `clipstack`, and the `text` block with its output. */
const quotation =
  /(```sh\nnpx clipstack (.*)\n```\n\n<!-- output: written by 'npm run render' -->\n```text\n)[^`]*(?=```\n)/g;

const outputs = new Map<string, string>();

function outputOf(args: string): string {
  const known = outputs.get(args);
  if (known !== undefined) return known;
  const env = { ...process.env, NO_COLOR: "1" };
  const output = execFileSync("node", ["cli/clipstack.mjs", ...args.split(" ")], {
    cwd: root,
    encoding: "utf8",
    env,
  });
  outputs.set(args, output);
  return output;
}

/** Pages that quote the output of commands which depend on this repository only. */
export function outputPages(): readonly RenderedFile[] {
  return pages.map((path) => {
    const page = readFileSync(new URL(`../${path}`, import.meta.url), "utf8");
    const text = page.replace(quotation, (_, start, args) => start + outputOf(args));
    return { path, text };
  });
}
