import { Construct } from "constructs";
import type { z } from "zod";
import { Release } from "#providers/helm/lib/release/index.js";
import { podAppName } from "../../contract/pods.ts";
import { firstStronglyTyped, precisionSourceOf } from "../../contract/triton-releases.ts";
import { check } from "../checks/findings.ts";
import type { TerraformResource } from "../terraform/cdktf.ts";
import { contentHash } from "../terraform/content-hash.ts";
import { expression, projectFolder } from "../terraform/expression.ts";
import { type ChartValues, chartValues } from "./chart-values.ts";

/** Files that do not change an installation: example values, documentation, tests. */
const ignored = ["^values-[^/]*[.]yaml$", "^README[.]md", "[.]test[.]ts$"].join("|");

export interface InferenceChartProps {
  /** Folder of the chart `clipstack`, relative to the project. */
  readonly folder: string;
  /** Existing namespace, or a token of the resource that creates it. */
  readonly namespace: string;
  /** Values of the chart that differ from its defaults. */
  readonly values: ChartValues;
  /** Time limit of an installation or upgrade, without the readiness of the pods. */
  readonly timeoutSeconds: number;
  /**
   * Resources that must exist before the installation.
   *
   * @default - none
   */
  readonly dependsOn?: readonly TerraformResource[];
}

/**
 * Release of the Helm chart `clipstack`, installed with the stack's Helm provider, which the caller configures.
 *
 * The provider does not detect changed files of a local chart. Their hash is therefore the description of the release: a
 * changed file causes an upgrade, and `helm history` shows the chart of each revision.
 */
export class InferenceChart extends Construct {
  /** Name of the release. */
  readonly name = podAppName;
  readonly release: Release;

  constructor(scope: Construct, id: string, props: InferenceChartProps) {
    super(scope, id);

    const values = JSON.stringify(props.values, null, 2);
    check(this, () => valuesFindings(values));
    const chart = `${projectFolder}/${props.folder}`;
    const hash = expression(contentHash({ folder: chart, files: ["**"], ignored }));
    const { timeoutSeconds } = props;
    // the provider's default of 20 minutes applies to the whole operation
    const limit = `${timeoutSeconds + 60}s`;
    this.release = new Release(this, "release", {
      name: this.name,
      namespace: props.namespace,
      chart,
      description: `chart ${hash}`,
      // JSON is YAML with quoted strings, so that values interpolated by Terraform stay strings
      values: [values],
      // a `RolloutGate` waits: after a failure Helm would roll back and delete the pods with their logs
      wait: false,
      timeout: timeoutSeconds,
      timeouts: { create: limit, update: limit, delete: limit },
      atomic: false,
      cleanupOnFail: true,
      maxHistory: 10,
      dependsOn: props.dependsOn === undefined ? undefined : [...props.dependsOn],
    });
  }

  /** Terraform address of the release. */
  get address(): string {
    return `${this.release.terraformResourceType}.${this.release.friendlyUniqueId}`;
  }
}

/** Values that the chart's schema rejects. Terraform expressions are accepted. */
function valuesFindings(json: string): readonly string[] {
  const result = chartValues.safeParse(JSON.parse(json.replaceAll(/\$\{[^}]*\}/g, "x")));
  if (result.success) return precisionFindings(result.data.triton);
  return result.error.issues.map(({ path, message }) => `values.${path.join(".")}: ${message}`);
}

/** Configurations with a precision that the release of Triton ignores. */
function precisionFindings({
  server,
  image: { repository, tag, digest },
  modelConfig,
}: z.output<typeof chartValues>["triton"]): readonly string[] {
  const source = precisionSourceOf(digest === "" ? `${repository}:${tag}` : digest);
  if (server === "emulator" || source !== "graph") return [];
  return Object.entries(modelConfig.texts)
    .filter(([, text]) => text.includes('"precision_mode"'))
    .map(
      ([name]) =>
        `values.triton.modelConfig.texts.${name} must not set precision_mode from Triton ${firstStronglyTyped} on, whose TensorRT takes the precision from the graph, got the tag ${tag}`,
    );
}
