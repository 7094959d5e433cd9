import { readFileSync } from "node:fs";
import { posix } from "node:path";
import { fileURLToPath } from "node:url";
import type { RenderedFile } from "./rendered-file.ts";

const index = fileURLToPath(new URL("../docs/README.md", import.meta.url));

/** `llms.txt` (llmstxt.org): the pages of docs/README.md as a list that language models read. */
export function llmsText(): RenderedFile {
  const lines = readFileSync(index, "utf8")
    .split("\n")
    .flatMap((line) => {
      if (line.startsWith("## ")) return ["", line, ""];
      const [, first = "", second = ""] = /^\| (.*?) \| (.*) \|$/.exec(line) ?? [];
      const [pages, about] = /\]\(/.test(first) ? [first, second] : [second, first];
      return links(pages).map(({ name, path }) => `- [${name}](${path}): ${plain(about)}`);
    });
  const text = `# clipstack

> GPU inference infrastructure for image and text embeddings: environments in YAML become Terraform JSON, containers and Kubernetes
> objects; an embed server and NVIDIA Triton serve the models; plan review, verification, benchmarks and capacity planning.
${lines.join("\n").replace(/\n## Commands on these pages[\s\S]*$/, "")}
`;
  return { path: "llms.txt", text };
}

function links(text: string): readonly { readonly name: string; readonly path: string }[] {
  return [...text.matchAll(/\[([^\]]+)\]\(([^)#]+)[^)]*\)/g)].map(([, name = "", path = ""]) => ({
    name: plain(name),
    path: posix.join("docs", path),
  }));
}

/** Text without links and code marks. */
function plain(text: string): string {
  return text.replace(/\[([^\]]+)\]\([^)]*\)/g, "$1").replaceAll("`", "");
}
