import { stopSeconds } from "../../constructs/checks/stop-times.ts";
import { graceSeconds as podGraceSeconds } from "../../contract/pods.ts";
import { option, serviceContainers } from "../facts/service-containers.ts";
import { at, block, blocks, isMissing, number, texts } from "../facts/values.ts";
import { deploymentsOf, ownPodContainers, podContainers, podOf } from "../facts/workloads.ts";
import type { Values } from "../input/change.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

/** Shutdown of containers and pods. */
export const shutdownRules: readonly ReviewRule[] = [
  rule({
    id: "stop-time",
    severity: "error",
    fix: "raise the stop timeout, or lower the server's grace period",
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
    fix: "add a pre_stop hook that sleeps 5 seconds",
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
