import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { contentsOf } from "./contents.ts";
import type { RenderedFile } from "./rendered-file.ts";

const index = fileURLToPath(new URL("../docs/README.md", import.meta.url));

/** `llms.txt` (llmstxt.org): the pages of docs/README.md as a list that language models read. */
export function llmsText(): RenderedFile {
  const sections = contentsOf(readFileSync(index, "utf8")).map(({ title, entries }) => {
    const lines = entries.map(({ name, path, about }) => `- [${name}](${path}): ${about}`);
    return `\n## ${title}\n\n${lines.join("\n")}\n`;
  });
  const text = `# clipstack

> GPU inference infrastructure for image and text embeddings: environments in YAML become Terraform JSON, containers and Kubernetes
> objects; an embed server and NVIDIA Triton serve the models; plan review, verification, benchmarks and capacity planning.
${sections.join("")}`;
  return { path: "llms.txt", text };
}
