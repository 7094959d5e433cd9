import { readFileSync, writeFileSync } from "node:fs";
import type { Command } from "commander";
import { isMap, parseDocument } from "yaml";
import { imagesOf } from "../../review/facts/used-images.ts";
import { resourcesOf } from "../../review/facts/workloads.ts";
import { changeOfDocuments } from "../../review/input/document-change.ts";
import { titleOf } from "../../review/input/stack-facts.ts";
import { parseDocument as parseSynthesized } from "../../review/input/synthesized-document.ts";
import { withSetting } from "../../stacks/settings/edit-settings.ts";
import { resolveDigest } from "../host/image-registry.ts";
import { readEnvironmentText } from "../prepare/environment-text.ts";
import { synthesizedFile } from "../shared/artefact.ts";
import { textMatching } from "../shared/option-values.ts";

/** `clipstack images`: images that a host or cluster without the internet needs in its registry. */
export function registerImages(program: Command): void {
  const images = program
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
  $ npx clipstack images pin single-gpu

Exit codes: 0 success, 2 usage or settings error.`,
    )
    .action(async (name: string, { synth }: { readonly synth: boolean }) => {
      const change = await changeOf(name, synth);
      for (const image of new Set(imagesOf(change).map((it) => it.image))) console.log(image);
      for (const image of resourcesOf(change, "docker_image")) {
        if (image.after?.build === undefined) continue;
        console.error(`${titleOf(image)} is built: name an image of the registry instead`);
      }
    });
  images
    .command("pin")
    .description("write the digests of an environment's images into its file")
    .argument("<environment>", "environment whose images are pinned")
    .option("--platform <platform>", "platform that each image must have", platform, "linux/amd64")
    .addHelpText(
      "after",
      `
'name:1.2' becomes 'name:1.2@sha256:…', for every image that a host or cluster pulls, also if the setting has a default. Pinned images stay as
they are: to update one, write its new tag without a digest, and pin again. Reads the registries with 'docker buildx' and the credentials of
'docker login'. If one image cannot be resolved, the file is not changed.

Examples:
  $ npx clipstack images pin single-gpu
  $ npx clipstack images pin staging --platform linux/arm64

Exit codes: 0 all are pinned, 1 an image cannot be resolved, 2 usage or settings error.`,
    )
    .action((name: string, args: { readonly platform: string }) => pin(name, args.platform));
}

async function changeOf(name: string, synth: boolean) {
  const { file } = await synthesizedFile(name, synth);
  return changeOfDocuments(name, undefined, parseSynthesized(readFileSync(file, "utf8"), name));
}

const platform = textMatching(/^linux\/[a-z0-9]+$/, "It must be like linux/amd64.");

async function pin(name: string, required: string): Promise<void> {
  const pulled = imagesOf(await changeOf(name, true))
    .filter(({ pullPolicy }) => pullPolicy !== "Never")
    .map(({ image }) => image);
  const { file, text: before, environment } = readEnvironmentText(name);
  const unpinned = pulled.filter((image) => !image.includes("@"));
  const tags = textSettings(environment.settings).filter(({ value }) => unpinned.includes(value));
  const digests = new Map<string, string>();
  const problems: string[] = [];
  for (const image of new Set(tags.map(({ value }) => value))) {
    const resolved = await resolveDigest(image, required);
    if ("digest" in resolved) digests.set(image, resolved.digest);
    else problems.push(`${name}: ${resolved.problem}`);
  }
  if (problems.length > 0) {
    console.error(problems.join("\n"));
    process.exitCode = 1;
    return;
  }
  let text = before;
  for (const { path, value } of tags) {
    const pinned = `${value}@${digests.get(value)}`;
    const setting = pathInFile(path, before);
    text = withSetting(text, setting, pinned);
    console.log(`${setting.join(".")}: ${pinned}`);
  }
  if (text === before) console.log(`${name}: every image that is pulled has a digest`);
  else writeFileSync(file, text);
}

interface TextSetting {
  readonly path: readonly string[];
  readonly value: string;
}

function textSettings(settings: object, path: readonly string[] = []): readonly TextSetting[] {
  return Object.entries(settings).flatMap(([key, value]: [string, unknown]) => {
    const at = [...path, key];
    if (typeof value === "string") return [{ path: at, value }];
    return typeof value === "object" && value !== null ? textSettings(value, at) : [];
  });
}

/** A source of images, `{ source, name }` once it is parsed, may be a name alone in the file. */
function pathInFile(path: readonly string[], yaml: string): readonly string[] {
  const parent = path.slice(0, -1);
  return path.at(-1) === "name" && !isMap(parseDocument(yaml).getIn(parent)) ? parent : path;
}
