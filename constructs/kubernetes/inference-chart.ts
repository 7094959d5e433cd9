import { Release } from "@cdktf/provider-helm/lib/release/index.js";
import { Construct } from "constructs";
import { podAppName } from "../../contract/pods.ts";
import type { TerraformResource } from "../cdktf.ts";
import { check } from "../checks/findings.ts";
import { contentHash } from "../docker/content-hash.ts";
import { expression, projectFolder } from "../expression.ts";
import { type ChartValues, chartValues } from "./chart-values.ts";

/** The project's own chart, from the project's root. */
export const chartFolder = "helm/clipstack";

/** What an installation is not made of: values to choose from, documentation, tests. */
const ignored = ["^values-[^/]*[.]yaml$", "^README[.]md", "[.]test[.]ts$"].join("|");

export interface InferenceChartProps {
  /** Namespace, which is there before the release: a token of its resource says so. */
  readonly namespace: string;
  /** Values of the chart: what differs from its defaults. */
  readonly values: ChartValues;
  /** How long the installed objects may take to become ready; an upgrade has the same time. */
  readonly timeoutSeconds: number;
  /**
   * Who waits for the installed objects. `helm` goes back when they do not become ready, and with the pods goes what they
   * had to say; a `RolloutGate` after the release says why, and leaves them to be looked at.
   *
   * @default "helm"
   */
  readonly waits?: "helm" | "gate";
  /** What must be there before. */
  readonly dependsOn?: readonly TerraformResource[];
}

/**
 * The project's Helm chart, installed with the stack's Helm provider, which the caller makes.
 *
 * The provider does not see that the files of a local chart have changed: their hash is the description of the release, so
 * that a change of them is an upgrade, and `helm history` says which chart each revision had.
 */
export class InferenceChart extends Construct {
  /** Name of the release. */
  readonly name = podAppName;
  readonly release: Release;

  constructor(scope: Construct, id: string, props: InferenceChartProps) {
    super(scope, id);

    const values = JSON.stringify(props.values, null, 2);
    check(this, () => valuesFindings(values));
    const chart = `${projectFolder}/${chartFolder}`;
    const hash = expression(contentHash({ folder: chart, files: ["**"], ignored }));
    const { timeoutSeconds } = props;
    const helmWaits = props.waits !== "gate";
    // the provider's own limit, of 20 minutes, is one for the whole operation
    const limit = `${timeoutSeconds + 60}s`;
    this.release = new Release(this, "release", {
      name: this.name,
      namespace: props.namespace,
      chart,
      description: `chart ${hash}`,
      // JSON is YAML, with quotes around every string: what Terraform puts there stays a string
      values: [values],
      wait: helmWaits,
      timeout: timeoutSeconds,
      timeouts: { create: limit, update: limit, delete: limit },
      // an installation that fails leaves nothing; an upgrade that fails goes back to what ran
      atomic: helmWaits,
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

/** Values that the chart would refuse. What only Terraform knows is taken as it is. */
function valuesFindings(json: string): readonly string[] {
  const result = chartValues.safeParse(JSON.parse(json.replaceAll(/\$\{[^}]*\}/g, "x")));
  return (result.error?.issues ?? []).map(
    ({ path, message }) => `values.${path.join(".")}: ${message}`,
  );
}
