import type { ClusterRequirements } from "../../constructs/kubernetes/cluster-requirements.ts";
import { UserError } from "../../contract/user-error.ts";
import { accessText } from "../../verify/cluster/cluster-api.ts";
import { type DoctorReport, doctorText, reportOf } from "../host/doctor-text.ts";
import { problem } from "../shared/host-verdict.ts";
import { type ClusterFacts, readClusterFacts } from "./cluster-facts.ts";
import { judgeCluster } from "./cluster-findings.ts";

/** Output of `clipstack doctor --json` for an environment on a cluster. */
interface ClusterReport extends DoctorReport<ClusterFacts> {
  /** kubeconfig and context of the settings. */
  readonly cluster: { readonly kubeconfig: string; readonly context: string };
}

/** Compares the cluster of an environment with its requirements. */
export async function examineCluster(needs: ClusterRequirements): Promise<ClusterReport> {
  const { environment, kubeconfig, context } = needs;
  const subject = { schema: 1, environment, cluster: { kubeconfig, context } } as const;
  try {
    const facts = await readClusterFacts(needs);
    return reportOf(subject, judgeCluster(needs, facts), facts);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const unreachable = problem({
      code: "cluster",
      message: error.message,
      fix: `set cluster.kubeconfig and cluster.context to a context that 'kubectl config get-contexts' lists and 'kubectl version' reaches`,
    });
    return reportOf(subject, unreachable);
  }
}

/** Renders the report: everything, or only problems and notes. */
export function clusterReportText(report: ClusterReport, content: "all" | "problems"): string {
  const facts = report.facts === undefined ? [] : factLines(report.facts);
  return doctorText(report, accessText(report.cluster), "in", facts, content);
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
