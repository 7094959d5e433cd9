import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { aligned } from "../report/render/text-table.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const isSource = /\.(?:ts|mts|mjs|py|tpl|c)$/;
const isTest = /\.test\.ts$|\.suite\.ts$|(?:^|\/)test-[^/]*$|^tests\//;

interface Size {
  source: number;
  tests: number;
}

const sizes = new Map<string, Size>();
let rendered = 0;

const add = (name: string, kind: keyof Size, lines: number) => {
  const size = sizes.get(name) ?? { source: 0, tests: 0 };
  size[kind] += lines;
  sizes.set(name, size);
};

const listed = execFileSync("git", ["ls-files"], { cwd: root, encoding: "utf8" });
const generated = readFileSync(join(root, ".gitattributes"), "utf8");
const recorded = /^(?:lab\/(?:records|published|gpu\/records)|bench\/reports)\//;
for (const file of listed.split("\n").filter((name) => name !== "")) {
  if (generated.includes(`/${file} `) || recorded.test(file)) rendered += 1;
  if (!isSource.test(file)) continue;
  const [folder = ""] = file.includes("/") ? file.split("/") : ["(root)"];
  const part = folder === "lab" || folder === "examples" ? folder : "house";
  const kind = isTest.test(file) ? "tests" : "source";
  const lines = readFileSync(join(root, file), "utf8").split("\n").length - 1;
  for (const name of new Set([folder, part])) add(name, kind, lines);
}

const sum = ["house", "lab", "examples"].map((name) => sizes.get(name) ?? { source: 0, tests: 0 });
sizes.set("all", {
  source: sum.reduce((total, { source }) => total + source, 0),
  tests: sum.reduce((total, { tests }) => total + tests, 0),
});
const rows = [...sizes]
  .sort(([, a], [, b]) => b.source - a.source)
  .map(([name, { source, tests }]) => [name, String(source), String(tests)]);
console.log(
  aligned([["", "source lines", "test lines"], ...rows], (column) =>
    column === 0 ? "left" : "right",
  ),
);
console.log(`${rendered} rendered and recorded files`);
