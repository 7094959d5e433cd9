import type { ClusterRequirements } from "../../constructs/kubernetes/cluster-requirements.ts";
import { UserError } from "../../contract/user-error.ts";
import { accessText } from "../../verify/cluster/cluster-api.ts";
import { doctorText } from "../host/doctor-text.ts";
import type { Problem } from "../shared/problem.ts";
import { type ClusterFacts, readClusterFacts } from "./cluster-facts.ts";
import { judgeCluster } from "./cluster-findings.ts";

/** Output of `clipstack doctor --json` for an environment on a cluster. */
export interface ClusterReport {
  /** Incremented when a field changes meaning. */
  readonly schema: 1;
  readonly environment: string;
  /** kubeconfig and context of the settings. */
  readonly cluster: { readonly kubeconfig: string; readonly context: string };
  /** Whether the environment can be deployed. */
  readonly ready: boolean;
  readonly problems: readonly Problem[];
  /** Facts that could not be read, and possible problems. */
  readonly notes: readonly string[];
  /** Absent if the cluster could not be reached. */
  readonly facts?: ClusterFacts;
}

/** Compares the cluster of an environment with its requirements. */
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
      fix: `set cluster.kubeconfig and cluster.context to a context that 'kubectl config get-contexts' lists and 'kubectl version' reaches`,
    };
    return { ...subject, ready: false, problems: [problem], notes: [] };
  }
}

/** Renders the report: everything, or only problems and notes. */
export function clusterReportText(report: ClusterReport, content: "all" | "problems"): string {
  const facts = report.facts === undefined ? [] : factLines(report.facts);
  return doctorText(
    { ...report, where: accessText(report.cluster), preposition: "in", facts },
    content,
  );
}

function factLines({ version, nodes }: ClusterFacts): readonly string[] {
  const line = (name: string, text: string) => `  ${name.padEnd(10)} ${text}`;
  return [
    line("kubernetes", version),
    ...(nodes === undefined
      ? [line("gpus", "none required, or not readable")]
      : nodes.map(({ name, gpus, ready }) =>
          line("node", `${name}: ${gpus} GPUs${ready ? "" : ", not ready"}`),
        )),
  ];
}
