import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { imagesOf } from "../../review/facts/used-images.ts";
import { resourcesOf } from "../../review/facts/workloads.ts";
import { changeOfDocuments } from "../../review/input/document-change.ts";
import { titleOf } from "../../review/input/stack-facts.ts";
import { parseDocument } from "../../review/input/synthesized-document.ts";
import { synthesizedFile } from "../shared/artefact.ts";

/** `clipstack images`: images that a host or cluster without the internet needs in its registry. */
export function registerImages(program: Command): void {
  program
    .command("images")
    .argument("<environment>", "environment whose images are listed")
    .option("--no-synth", "use the existing output in cdktf.out")
    .addHelpText(
      "after",
      `
One image a line on standard output. Images that the host builds are named on standard error: a host without the internet cannot build them.

Examples:
  $ npx clipstack images single-gpu
  $ npx clipstack images k8s-gpu | xargs -n 1 docker pull

Exit codes: 0 success, 2 usage or settings error.`,
    )
    .action(async (name: string, { synth }: { readonly synth: boolean }) => {
      const { file } = await synthesizedFile(name, synth);
      const document = parseDocument(readFileSync(file, "utf8"), name);
      const change = changeOfDocuments(name, undefined, document);
      for (const image of new Set(imagesOf(change).map((it) => it.image))) console.log(image);
      for (const image of resourcesOf(change, "docker_image")) {
        if (image.after?.build === undefined) continue;
        console.error(`${titleOf(image)} is built: name an image of the registry instead`);
      }
    });
}
