import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import type { Manifest } from "../../artefact/terraform-manifests.ts";
import { manifestsOf } from "../../artefact/terraform-manifests.ts";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { chartModels } from "../../constructs/kubernetes/chart-values-for.ts";
import { Testing } from "../../constructs/terraform/cdktf.ts";
import { type ModelSpec, withModalities } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { labelNames, podAppName } from "../../contract/pods.ts";
import { KindStack } from "../../stacks/kind.ts";
import { parseSettings } from "../../stacks/settings/settings.ts";
import { differences } from "./test-compare-objects.ts";
import { chart, noHelm, type TestObject, template } from "./test-helm.ts";

/** `values-kind.yaml` and the stack kind are rendered from the same settings: they must declare the same objects. */

const settings = parseSettings("kind", "defaults", "");

/** Intended differences with the reason. */
const intended = [
  // labels of Helm and the chart
  ...[labelNames.managedBy, labelNames.version, "helm.sh/chart"].flatMap((label) =>
    [
      "ConfigMap",
      "Deployment",
      "HorizontalPodAutoscaler",
      "LimitRange",
      "NetworkPolicy",
      "PodDisruptionBudget",
      "ResourceQuota",
      "Service",
      "ServiceAccount",
    ].map((kind) => `${kind}: metadata.labels.${label.replaceAll(".", "·")}`),
  ),
  // not supported by the provider (hashicorp/kubernetes has no `unhealthy_pod_eviction_policy`)
  "PodDisruptionBudget: spec.unhealthyPodEvictionPolicy",
];

/** Objects of the stack in its namespace. The chart contains neither the namespace nor metrics-server. */
function ofStack(models: readonly ModelSpec[] = settings.models): readonly Manifest[] {
  const text = Testing.synth(
    new KindStack(Testing.app(), "kind-local", { ...settings, models, deployWith: "kubernetes" }),
  );
  const values = parse(readFileSync(join(chart, "values-kind.yaml"), "utf8")) as ChartValues;
  const { repository, tag } = values.embed?.image ?? {};
  return manifestsOf(JSON.parse(text).resource, "kind-local", {
    // the chart names an image that the stack builds
    image: `${repository}:${tag}`,
  })
    .map(({ manifest }) => manifest)
    .filter(({ metadata }) => metadata.namespace === settings.namespace);
}

/** Objects of a release, without its tests. */
function ofChart(values: ChartValues = {}): readonly TestObject[] {
  return template(values, { file: "values-kind", release: podAppName }).filter(
    ({ metadata }) => metadata.annotations?.["helm.sh/hook"] === undefined,
  );
}

describe.skipIf(noHelm !== "")(
  `Helm chart and stack kind-local${noHelm && ` (skipped: ${noHelm})`}`,
  () => {
    test("declare the same objects", () => {
      expect(differences(ofChart(), ofStack(), intended)).toEqual([]);
    });

    test("declare the same objects for several models", () => {
      const models = [
        modelCatalogue.get("openclip-vit-b32")!,
        withModalities(modelCatalogue.get("dinov2-small")!, ["image"]),
        withModalities(modelCatalogue.get("siglip2-base-224")!, ["text"]),
      ];
      expect(differences(ofChart(chartModels(models)), ofStack(models), intended)).toEqual([]);
    });

    test("are compared completely", () => {
      expect(
        ofStack()
          .map(({ kind, metadata }) => `${kind} ${metadata.name}`)
          .sort(),
      ).toEqual([
        "ConfigMap clipstack-embed-models",
        "Deployment clipstack-embed",
        "HorizontalPodAutoscaler clipstack-embed",
        "LimitRange clipstack",
        "NetworkPolicy clipstack-embed",
        "PodDisruptionBudget clipstack-embed",
        "ResourceQuota clipstack",
        "Service clipstack-embed",
        "ServiceAccount clipstack-embed",
      ]);
    });
  },
);
