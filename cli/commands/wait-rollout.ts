import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import {
  type ClusterApi,
  ClusterUnreachable,
  openCluster,
} from "../../verify/cluster/cluster-api.ts";
import { lastPodLines, waitForRollout, warningsOf } from "../cluster/rollout.ts";
import { wholeNumber } from "../option-values.ts";

interface WaitArguments {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly namespace: string;
  readonly replicas: number;
  readonly timeout: number;
  readonly lines: number;
}

/** `clipstack wait-rollout`: what a deployment runs for each Deployment of a cluster. */
export function registerWaitRollout(program: Command): void {
  program
    .command("wait-rollout")
    .argument("<deployment>", "its name")
    .option("--kubeconfig <file>", "kubeconfig (default: KUBECONFIG, or ~/.kube/config)")
    .option("--context <name>", "its context (default: the current one)")
    .option("--namespace <name>", "namespace of the Deployment", "clipstack")
    .option("--replicas <number>", "the fewest pods that must be ready", wholeNumber(1, 86_400), 1)
    .option("--timeout <seconds>", "how long it may take", wholeNumber(1, 86_400), 300)
    .option("--lines <number>", "how many log lines to show", wholeNumber(1, 86_400), 20)
    .addHelpText(
      "after",
      `
Examples:
  $ npx clipstack wait-rollout clipstack-embed --context kind-clipstack
  $ npx clipstack wait-rollout clipstack-triton --namespace inference --timeout 1200

Exit codes: 0 ready, 1 not, 2 wrong usage, or a cluster that cannot be asked.`,
    )
    .action(waitRollout);
}

/** Longest that the API server may be out of reach while it is asked. */
const unreachableMs = 15_000;

async function waitRollout(deployment: string, args: WaitArguments): Promise<void> {
  const interrupt = onInterrupt();
  let api: ClusterApi | undefined;
  try {
    api = await openCluster(args, interrupt.signal);
    const reader = { api, namespace: args.namespace };
    const failure = await waitForRollout({
      reader: { ...reader, api: patient(api, interrupt.signal) },
      deployment,
      replicas: args.replicas,
      timeoutMs: args.timeout * 1000,
      intervalMs: 1_000,
      signal: interrupt.signal,
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
    if (warnings.length > 0) console.log(`what the cluster says of pod ${pod}:`);
    for (const line of warnings) console.log(`  ${line}`);
    if (lines.length > 0) console.log("its last log lines:");
    for (const line of lines) console.log(`  ${line}`);
  } catch (error) {
    if (!interrupt.signal.aborted) throw error;
    console.error("clipstack: interrupted");
    process.exitCode = new Interrupted("interrupted").exitCode;
  } finally {
    await api?.close();
    interrupt.remove();
  }
}

/** An API server may be out of reach for a moment, as in a cluster that was made just now. */
function patient(api: ClusterApi, signal: AbortSignal): Pick<ClusterApi, "get" | "list" | "text"> {
  let reachedMs = performance.now();
  const again = async <T>(read: () => Promise<T>): Promise<T> => {
    while (true) {
      try {
        const found = await read();
        reachedMs = performance.now();
        return found;
      } catch (error) {
        const gaveUp = performance.now() - reachedMs > unreachableMs;
        if (!(error instanceof ClusterUnreachable) || signal.aborted || gaveUp) throw error;
        await sleep(1_000, undefined, { signal });
      }
    }
  };
  return {
    get: (path) => again(() => api.get(path)),
    list: (path) => again(() => api.list(path)),
    text: (path) => again(() => api.text(path)),
  };
}
