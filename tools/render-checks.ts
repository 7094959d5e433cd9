import { readFileSync } from "node:fs";
import { checks, renderChecksPage } from "../verify/checks/registry.ts";
import type { RenderedFile } from "./rendered-file.ts";

const start = "<!-- checks: written by 'npm run render' -->";
const end = "<!-- /checks -->";

/** `docs/checks.md`, and the table of the checks of a simulation in README.md. */
export function checkFiles(): readonly RenderedFile[] {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const rows = checks.flatMap(({ name, passes }) =>
    passes.simulation === undefined ? [] : [`| ${name} | ${passes.simulation} |`],
  );
  const table = [start, "| check | passes if |", "| --- | --- |", ...rows, end].join("\n");
  const text = readme.replace(new RegExp(`${start}[\\s\\S]*?${end}`), () => table);
  return [
    { path: "README.md", text },
    { path: "docs/checks.md", text: renderChecksPage() },
  ];
}
