import { stringify } from "yaml";
import { manifestsOf } from "../../artefact/terraform-manifests.ts";
import { Testing } from "../../constructs/terraform/cdktf.ts";
import { KindStack } from "../../stacks/kind.ts";
import { parseSettings } from "../../stacks/settings/settings.ts";

/** Manifests of the metrics-server that the stack `kind` declares, for a cluster that already exists. */
export function metricsServerManifests(): string {
  const stack = new KindStack(Testing.app(), "kind-local", parseSettings("kind", "defaults", ""));
  return manifestsOf(JSON.parse(Testing.synth(stack)).resource, "kind-local")
    .filter(({ address }) => /\.metrics-server_/.test(address))
    .map(({ manifest }) => stringify(manifest))
    .join("---\n");
}
