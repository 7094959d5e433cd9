import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { manifestsOf } from "../../artefact/terraform-manifests.ts";
import { Testing } from "../../constructs/cdktf.ts";
import { KindStack } from "../../stacks/kind.ts";
import { parseSettings } from "../../stacks/settings.ts";

/** Manifests of the metrics-server that `kind-local` declares, for other clusters. */
export function metricsServerManifests(): string {
  const file = fileURLToPath(new URL("../../stacks/kind-local.settings.yaml", import.meta.url));
  const settings = parseSettings("kind-local", file, readFileSync(file, "utf8"));
  const stack = new KindStack(Testing.app(), "kind-local", settings);
  return manifestsOf(JSON.parse(Testing.synth(stack)).resource, file)
    .filter(({ address }) => /\.metrics-server_/.test(address))
    .map(({ manifest }) => stringify(manifest))
    .join("---\n");
}
