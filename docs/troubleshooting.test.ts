import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../", import.meta.url));

/** Sections with messages of other programs. */
const others = new Set(["Docker and NVIDIA", "Triton", "Terraform and cdktf", "Kubernetes"]);

interface Message {
  readonly section: string;
  readonly text: string;
}

function messagesOf(page: string): readonly Message[] {
  let section = "";
  return page.split("\n").flatMap((line) => {
    if (line.startsWith("## ")) section = line.slice(3);
    const text = /^### `(.*)`$/.exec(line)?.[1];
    // a cause can have two messages
    return text?.split("`, or `").map((one) => ({ section, text: one })) ?? [];
  });
}

const messages = messagesOf(readFileSync(join(root, "docs/troubleshooting.md"), "utf8"));
const own = messages.filter(({ section }) => !others.has(section));

function* sources(folder: string): Generator<string> {
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory() && entry.name !== "node_modules") yield* sources(path);
    else if (/\.(ts|mjs)$/.test(entry.name) && !entry.name.includes("test")) yield path;
  }
}

const texts = [
  ...["contract", "inference", "client", "model-tools", "constructs", "http", "emulator"],
  ...["inference-image"],
  ...["artefact", "target", "report", "bench", "verify", "review", "stacks", "cli", "tools"],
]
  .flatMap((folder) => [...sources(folder)])
  .map((file) => readFileSync(join(root, file), "utf8"));

/** Parts of a message between its values, which the sources contain verbatim; findings are path, rule and value. */
const partsOf = (text: string) =>
  text
    .split(/…| must |, got /)
    .map((part) => part.trim())
    .filter((part) => /\w{3}/.test(part));

/** Parts missing from the file that contains most of them, because a message is in one file. */
function missingParts(text: string): readonly string[] {
  const parts = partsOf(text);
  const best = texts
    .map((source) => parts.filter((part) => !source.includes(part)))
    .sort((a, b) => a.length - b.length)[0];
  return best ?? parts;
}

test("covers messages of this project and of other programs", () => {
  expect(own.length).toBeGreaterThan(30);
  expect(messages.length - own.length).toBeGreaterThan(15);
  expect(new Set(messages.map(({ section }) => section))).toEqual(
    new Set([
      ...["clipstack and cdktf synth", "The model", "Doctor", "Deploying", "Verify and bench"],
      ...["The embed server", ...others],
    ]),
  );
});

test("the sources contain every message of this project", () => {
  const gone = own.flatMap(({ text }) =>
    missingParts(text).map((part) => `${text}: not in the sources: '${part}'`),
  );
  expect(gone).toEqual([]);
});

test("reports a message that no source contains", () => {
  expect(missingParts("the moon is not … enough for a deployment of GPUs")).not.toEqual([]);
});
