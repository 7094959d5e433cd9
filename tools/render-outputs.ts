import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { RenderedFile } from "./rendered-file.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const pages = ["docs/capacity.md", "docs/guides/cost.md"];

/** An `sh` block with one command of `clipstack` or of the laboratory, and the `text` block with its output. */
const quotation =
  /(```sh\n(npx clipstack|npm run lab --) (.*)\n```\n\n<!-- output: written by 'npm run render' -->\n```text\n)[^`]*(?=```\n)/g;

const programs: Readonly<Record<string, readonly string[]>> = {
  "npx clipstack": ["cli/clipstack.mjs"],
  "npm run lab --": ["--import", "tsx", "lab/main.ts"],
};

const outputs = new Map<string, string>();

function outputOf(program: string, args: string): string {
  const known = outputs.get(args);
  if (known !== undefined) return known;
  const env = { ...process.env, NO_COLOR: "1" };
  const output = execFileSync("node", [...(programs[program] ?? []), ...args.split(" ")], {
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
    const text = page.replace(
      quotation,
      (_, start, program, args) => start + outputOf(program, args),
    );
    return { path, text };
  });
}
