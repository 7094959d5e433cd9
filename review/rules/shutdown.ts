import { stopSeconds } from "../../constructs/checks/stop-times.ts";
import { graceSeconds as podGraceSeconds } from "../../contract/pods.ts";
import type { Values } from "../input/change.ts";
import { containerPath, podContainerPath, tritonOnnx } from "./example-paths.ts";
import { deploymentsOf, ownPodContainers, podContainers, podOf } from "./facts.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { option, serviceContainers } from "./service-containers.ts";
import { at, block, blocks, isMissing, number, texts } from "./values.ts";

/** Shutdown of containers and pods. */
export const shutdownRules: readonly ReviewRule[] = [
  rule({
    id: "stop-time",
    severity: "error",
    title: "Servers are killed only after their own grace period.",
    rationale:
      "A stopping server finishes its in-flight requests. If it is killed earlier, requests fail in every deployment.",
    inputs:
      "`stop_timeout` and `destroy_grace_seconds` of a container, compared with `--exit-timeout-secs` or `SHUTDOWN_GRACE_SECONDS` plus a margin of 5 s; `termination_grace_period_seconds` of a pod, which also includes its pre_stop sleep.",
    fix: "raise the stop timeout, or lower the server's grace period",
    example: {
      stack: "single-gpu",
      message: "destroy_grace_seconds must be at least 35 (grace period 30 + 5), got 10",
      edits: [
        {
          path: containerPath(tritonOnnx, "destroy_grace_seconds"),
          failing: 10,
          passing: 35,
        },
      ],
    },
    *find(change) {
      for (const { address, resource, values, kind, env, command } of serviceContainers(change)) {
        if (kind === "other") continue;
        const graceSetting =
          kind === "triton"
            ? option(command, "exit-timeout-secs")
            : env.get("SHUTDOWN_GRACE_SECONDS");
        const grace = number(graceSetting) ?? 30;
        const required = stopSeconds(grace);
        for (const prop of ["stop_timeout", "destroy_grace_seconds"] as const) {
          const seconds = number(values[prop]);
          if (seconds === undefined ? !isMissing(resource, prop) : seconds >= required) continue;
          yield {
            address,
            message: `${prop} must be at least ${required} (grace period ${grace} + ${required - grace}), got ${seconds ?? "nothing"}`,
          };
        }
      }
      for (const deployment of deploymentsOf(change)) {
        const { pod, labels } = podOf(deployment);
        if (labels["app.kubernetes.io/name"] !== "clipstack") continue;
        const [first] = podContainers(pod);
        const grace = graceOfPod(first);
        const preStop = preStopSecondsOf(first);
        const required = stopSeconds(grace, preStop);
        // default of Kubernetes
        const seconds = number(pod.termination_grace_period_seconds) ?? 30;
        if (seconds >= required) continue;
        yield {
          address: deployment.address,
          message: `termination_grace_period_seconds must be at least ${required} (pre_stop ${preStop} + grace period ${grace} + ${required - grace - preStop}), got ${seconds}`,
        };
      }
    },
  }),
  rule({
    id: "pre-stop",
    severity: "warning",
    title: "Pods wait before they stop until nodes no longer route to them.",
    rationale:
      "Kubernetes stops the pod and updates the nodes' routing concurrently: without a delay before the stop, the last requests reach a closed port.",
    inputs: "`lifecycle.pre_stop` of clipstack's pods.",
    fix: "add a pre_stop hook that sleeps 5 seconds",
    example: {
      stack: "kind-local",
      message: "lifecycle.pre_stop should be set, got nothing",
      edits: [{ path: podContainerPath("lifecycle"), failing: undefined }],
    },
    find: each(ownPodContainers, ({ container }) =>
      block(at(container.lifecycle, "pre_stop")) === undefined
        ? "lifecycle.pre_stop should be set, got nothing"
        : undefined,
    ),
  }),
];

function graceOfPod(container: Values | undefined): number {
  // the last of several variables with the same name applies
  const variable = blocks(container?.env).findLast(({ name }) => name === "SHUTDOWN_GRACE_SECONDS");
  const flag = option(texts(container?.args), "exit-timeout-secs");
  return number(variable?.value) ?? number(flag) ?? podGraceSeconds;
}

function preStopSecondsOf(container: Values | undefined): number {
  const command = texts(at(container?.lifecycle, "pre_stop", "exec", "command"));
  return command[0] === "sleep" ? (number(command[1]) ?? 0) : 0;
}
