import type { Command } from "commander";
import { stringify } from "yaml";
import { readManifests } from "../../artefact/artefact.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import { UserError } from "../../contract/user-error.ts";
import { synthesizedFile } from "../artefact.ts";

export interface ManifestArguments {
  readonly image?: string;
  readonly synth: boolean;
  readonly json?: true;
}

/** `clipstack k8s manifests`: the objects of an environment, as `kubectl apply` takes them. */
export function registerManifests(k8s: Command): void {
  k8s
    .command("manifests")
    .description("print the Kubernetes objects that an environment declares, as kubectl takes them")
    .argument("<environment>", "an environment in a cluster, such as kind-local")
    .option("--image <name>", "image in place of one whose name only Terraform knows")
    .option("--no-synth", "of what lies in cdktf.out")
    .option("--json", "one JSON list in place of YAML")
    .addHelpText(
      "after",
      `
Typed resources are turned into manifests; a release of the chart is rendered with 'helm template', which must be
installed. The cluster itself, and images that Terraform builds, are not among them.

Examples:
  $ npx clipstack k8s manifests kind-local --image clipstack/embed:k8s-cpu | kubectl apply --server-side -f -
  $ npx clipstack k8s manifests k8s-gpu | kubectl apply --server-side --dry-run=server -f -

Exit codes: 0 all good, 2 wrong usage or settings.`,
    )
    .action(async (name: string, args: ManifestArguments) => {
      const objects = await environmentManifests(name, args);
      const manifests = objects.map(({ manifest }) => manifest);
      process.stdout.write(
        args.json
          ? `${JSON.stringify({ apiVersion: "v1", kind: "List", items: manifests }, null, 2)}\n`
          : manifestsYaml(manifests),
      );
    });
}

/**
 * The Kubernetes objects of an environment, each after those that it needs.
 *
 * @throws {UserError} for an environment without any, and for an image that must be given.
 */
export async function environmentManifests(
  name: string,
  { image, synth }: Pick<ManifestArguments, "image" | "synth">,
): Promise<readonly DeclaredObject[]> {
  const { file, shown } = await synthesizedFile(name, synth);
  const objects = readManifests(file, shown, { image, complete: true });
  if (objects.length > 0) return objects;
  throw new UserError(`environment must be one in a cluster, such as kind-local, got '${name}'`);
}

/** YAML documents. */
export function manifestsYaml(manifests: readonly object[]): string {
  return manifests.map((it) => `---\n${stringify(it, { aliasDuplicateObjects: false })}`).join("");
}
