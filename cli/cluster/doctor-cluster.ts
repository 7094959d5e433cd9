import type { ClusterRequirements } from "../../constructs/kubernetes/cluster-requirements.ts";
import { UserError } from "../../contract/user-error.ts";
import { accessText } from "../../verify/cluster/cluster-api.ts";
import { doctorText } from "../host/doctor-text.ts";
import type { Problem } from "../problem.ts";
import { type ClusterFacts, readClusterFacts } from "./cluster-facts.ts";
import { judgeCluster } from "./cluster-findings.ts";

/** What `clipstack doctor --json` prints of an environment on a cluster. */
export interface ClusterReport {
  /** Bumped when a field changes meaning. */
  readonly schema: 1;
  readonly environment: string;
  /** kubeconfig and context, as settings name them. */
  readonly cluster: { readonly kubeconfig: string; readonly context: string };
  /** Whether the environment can be deployed. */
  readonly ready: boolean;
  readonly problems: readonly Problem[];
  /** What could not be seen, or may be meant. */
  readonly notes: readonly string[];
  /** Absent where the cluster could not be reached. */
  readonly facts?: ClusterFacts;
}

/** Look at the cluster of an environment, and judge it. */
export async function examineCluster(needs: ClusterRequirements): Promise<ClusterReport> {
  const { environment, kubeconfig, context } = needs;
  const subject = { schema: 1, environment, cluster: { kubeconfig, context } } as const;
  try {
    const facts = await readClusterFacts(needs);
    const { problems, notes } = judgeCluster(needs, facts);
    return { ...subject, ready: problems.length === 0, problems, notes, facts };
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const problem: Problem = {
      code: "cluster",
      message: error.message,
      fix: `set cluster.kubeconfig and cluster.context to what 'kubectl config get-contexts' shows and 'kubectl version' reaches`,
    };
    return { ...subject, ready: false, problems: [problem], notes: [] };
  }
}

/** What a person reads; with `problems` what a deployment shows. */
export function clusterReportText(report: ClusterReport, what: "all" | "problems"): string {
  const facts = report.facts === undefined ? [] : factLines(report.facts);
  return doctorText(
    { ...report, where: accessText(report.cluster), preposition: "in", facts },
    what,
  );
}

function factLines({ version, nodes }: ClusterFacts): readonly string[] {
  const line = (name: string, text: string) => `  ${name.padEnd(10)} ${text}`;
  return [
    line("kubernetes", version),
    ...(nodes === undefined
      ? [line("gpus", "none needed, or not to be seen")]
      : nodes.map(({ name, gpus, ready }) =>
          line("node", `${name}: ${gpus} GPUs${ready ? "" : ", not ready"}`),
        )),
  ];
}
