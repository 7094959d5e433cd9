import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import {
  type ClusterApi,
  ClusterUnreachable,
  openCluster,
} from "../../verify/cluster/cluster-api.ts";
import { lastPodLines, waitForRollout, warningsOf } from "../cluster/rollout.ts";
import { interruptible } from "../shared/interruptible.ts";
import { wholeNumber } from "../shared/option-values.ts";

interface WaitArguments {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly namespace: string;
  readonly replicas: number;
  readonly timeout: number;
  readonly lines: number;
}

/** Registers `clipstack wait-rollout`, which a deployment runs for each Kubernetes Deployment. */
export function registerWaitRollout(program: Command): void {
  program
    .command("wait-rollout")
    .argument("<deployment>", "name of the Deployment")
    .option("--kubeconfig <file>", "kubeconfig (default: KUBECONFIG, or ~/.kube/config)")
    .option("--context <name>", "its context (default: the current one)")
    .option("--namespace <name>", "namespace of the Deployment", "clipstack")
    .option("--replicas <number>", "minimum number of ready pods", wholeNumber(0, 86_400), 1)
    .option("--timeout <seconds>", "maximum time to wait", wholeNumber(1, 86_400), 300)
    .option(
      "--lines <number>",
      "number of log lines to print on failure",
      wholeNumber(1, 86_400),
      20,
    )
    .addHelpText(
      "after",
      `
Examples:
  $ npx clipstack wait-rollout clipstack-embed --context kind-clipstack
  $ npx clipstack wait-rollout clipstack-triton --namespace inference --timeout 1200

Exit codes: 0 ready, 1 not ready, 2 usage error or unreachable cluster.`,
    )
    .action(waitRollout);
}

/** Maximum time for which an unreachable API server is retried. */
const unreachableMs = 15_000;

async function waitRollout(deployment: string, args: WaitArguments): Promise<void> {
  await interruptible("", async ({ signal }) => {
    const api = await openCluster(args, signal);
    await waitInCluster(deployment, args, api, signal).finally(() => api.close());
  });
}

async function waitInCluster(
  deployment: string,
  args: WaitArguments,
  api: ClusterApi,
  signal: AbortSignal,
): Promise<void> {
  const reader = { api, namespace: args.namespace };
  const failure = await waitForRollout({
    reader: { ...reader, api: withRetries(api, signal) },
    deployment,
    replicas: args.replicas,
    timeoutMs: args.timeout * 1000,
    intervalMs: 1_000,
    signal,
    onState: (text, elapsedMs) =>
      console.log(`${deployment}: ${text} (${(elapsedMs / 1000).toFixed(1)} s)`),
  });
  if (failure === undefined) return;
  process.exitCode = 1;
  console.log(`${deployment} is not ready: ${failure.failed}`);
  if (failure.pod === undefined) return;
  const { pod, container } = failure;
  const [warnings, lines] = await Promise.all([
    warningsOf(reader, pod).catch(() => []),
    lastPodLines(reader, { pod, container }, args.lines),
  ]);
  if (warnings.length > 0) console.log(`events of pod ${pod}:`);
  for (const line of warnings) console.log(`  ${line}`);
  if (lines.length > 0) console.log("last log lines:");
  for (const line of lines) console.log(`  ${line}`);
}

/** Retries reads while the API server is unreachable, as in a cluster that was just created. */
function withRetries(
  api: ClusterApi,
  signal: AbortSignal,
): Pick<ClusterApi, "get" | "list" | "text"> {
  let reachedMs = performance.now();
  const retry = async <T>(read: () => Promise<T>): Promise<T> => {
    while (true) {
      try {
        const result = await read();
        reachedMs = performance.now();
        return result;
      } catch (error) {
        const gaveUp = performance.now() - reachedMs > unreachableMs;
        if (!(error instanceof ClusterUnreachable) || signal.aborted || gaveUp) throw error;
        await sleep(1_000, undefined, { signal });
      }
    }
  };
  return {
    get: (path) => retry(() => api.get(path)),
    list: (path) => retry(() => api.list(path)),
    text: (path) => retry(() => api.text(path)),
  };
}
