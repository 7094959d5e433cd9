import type { Command } from "commander";
import { stringify } from "yaml";
import { readManifests } from "../../artefact/artefact.ts";
import { UserError } from "../../contract/user-error.ts";
import { recordText } from "../../report/save-reports.ts";
import { synthesizedFile } from "../shared/artefact.ts";

interface ManifestArguments {
  readonly image?: string;
  readonly synth: boolean;
  readonly json?: true;
}

/** Registers `clipstack k8s manifests`, which prints the objects of an environment for `kubectl apply`. */
export function registerManifests(k8s: Command): void {
  k8s
    .command("manifests")
    .description("print the Kubernetes manifests of an environment")
    .argument("<environment>", "environment on a cluster, such as kind-local")
    .option("--image <name>", "image for containers whose image name only Terraform knows")
    .option("--no-synth", "use the existing output in cdktf.out")
    .option("--json", "print one JSON list instead of YAML")
    .addHelpText(
      "after",
      `
Typed resources are converted to manifests; a Helm release is rendered with 'helm template', which must be installed.
The cluster itself and images that Terraform builds are not included.

Examples:
  $ npx clipstack k8s manifests kind-local --image clipstack/embed:k8s-cpu | kubectl apply --server-side -f -
  $ npx clipstack k8s manifests k8s-gpu | kubectl apply --server-side --dry-run=server -f -

Exit codes: 0 success, 2 usage or settings error.`,
    )
    .action(async (name: string, { image, synth, json }: ManifestArguments) => {
      const { file, displayPath } = await synthesizedFile(name, synth);
      // each object after its dependencies
      const objects = readManifests(file, displayPath, { image, complete: true });
      if (objects.length === 0) {
        throw new UserError(`environment must be on a cluster, such as kind-local, got '${name}'`);
      }
      const items = objects.map(({ manifest }) => manifest);
      process.stdout.write(
        json
          ? recordText({ apiVersion: "v1", kind: "List", items })
          : items.map((it) => `---\n${stringify(it, { aliasDuplicateObjects: false })}`).join(""),
      );
    });
}
