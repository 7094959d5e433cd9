import { stopSeconds } from "../../constructs/checks/stop-times.ts";
import { tritonStartSeconds } from "../../constructs/models/triton-times.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { executionInstances } from "../../contract/model-config.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import {
  graceSeconds as podGraceSeconds,
  startSeconds as podStartSeconds,
} from "../../contract/pods.ts";
import { goSeconds } from "../../contract/quantity.ts";
import { configOf, deployedConfigs, tensorrtOf } from "../facts/model-configs.ts";
import {
  option,
  type ServiceContainer,
  serviceContainers,
  tritonContainers,
  visibleGpus,
} from "../facts/service-containers.ts";
import {
  at,
  block,
  blocks,
  commandText,
  isMissing,
  number,
  pathOnly,
  text,
  texts,
} from "../facts/values.ts";
import {
  deploymentsOf,
  ownPodContainers,
  podContainers,
  podOf,
  releasesOf,
  specOf,
} from "../facts/workloads.ts";
import type { StackChange, Values } from "../input/change.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

/** Health checks of containers, probes of pods, and the time that both have to start and stop. */
export const healthRules: readonly ReviewRule[] = [
  rule({
    id: "health-check",
    severity: "error",
    fix: "add a healthcheck that requests the server's readiness route",
    find: each(serviceContainers, ({ resource, values }) => {
      if (isMissing(resource, "healthcheck")) return "healthcheck must be set, got nothing";
      return texts(at(values.healthcheck, "test"))[0] === "NONE"
        ? "healthcheck.test must check the server, got NONE"
        : undefined;
    }),
  }),
  rule({
    id: "health-check-readiness",
    severity: "warning",
    fix: `request ${embedPaths.readyz} for the embed server, ${oipPaths.ready} for Triton`,
    find: each(serviceContainers, ({ kind, values }) => {
      const paths = { embed: embedPaths.readyz, triton: oipPaths.ready };
      const path = { ...paths, baseline: embedPaths.readyz, other: undefined }[kind];
      const test = texts(at(values.healthcheck, "test"));
      return path === undefined || test.length === 0 || test.some((word) => word.includes(path))
        ? undefined
        : `healthcheck.test should request ${path}, got '${commandText(test)}'`;
    }),
  }),
  rule({
    id: "start-period",
    severity: "error",
    fix: "set healthcheck.start_period to at least that time",
    find: each(tritonContainers, (triton, change) => {
      const required = startSecondsOf(change, triton);
      const period = startPeriodOf(triton);
      return required === undefined || period === undefined || period >= required
        ? undefined
        : `healthcheck.start_period must be at least ${required} s, the time to load the model, got ${period} s`;
    }),
  }),
  rule({
    id: "pod-probes",
    severity: "error",
    fix: "add the missing probe, as in constructs/kubernetes/inference-deployment.ts",
    find: each(ownPodContainers, ({ container }) =>
      ["startup_probe", "readiness_probe", "liveness_probe"]
        .filter((probe) => block(container[probe]) === undefined)
        .map((probe) => `${probe} must be set, got nothing`),
    ),
  }),
  rule({
    id: "liveness-independent",
    severity: "error",
    fix: `request ${embedPaths.healthz} for the embed server, ${oipPaths.live} for Triton`,
    find: each(ownPodContainers, ({ container }) => {
      const [live, ready] = ["liveness_probe", "readiness_probe"].map((probe) =>
        probeTargetOf(block(container[probe])),
      );
      return live !== undefined && (live.identity === ready?.identity || live.isReadiness)
        ? `the liveness probe must not test readiness, got '${live.text}'`
        : undefined;
    }),
  }),
  rule({
    id: "probe-independent",
    severity: "error",
    fix: `probe the container itself; ${embedPaths.healthz} for the startup of a gateway, ${embedPaths.readyz} for its readiness`,
    find: each(ownPodContainers, ({ container }) => {
      const isGateway = blocks(container.env).some(
        ({ name, value }) => name === "BACKEND" && value === "triton",
      );
      return (["startup_probe", "liveness_probe"] as const).flatMap((name) => {
        const probe = block(container[name]);
        const target = probeTargetOf(probe);
        const host = otherHost(probe);
        if (host !== undefined) return `${name} must probe its own container, got host '${host}'`;
        return isGateway && name === "startup_probe" && target?.isReadiness
          ? `startup_probe of a gateway must not require a ready Triton, got '${target.text}'`
          : [];
      });
    }),
  }),
  rule({
    id: "startup-budget",
    severity: "error",
    fix: "raise failure_threshold of the startup probe (startSeconds in the chart values)",
    *find(change) {
      for (const { address, container } of ownPodContainers(change)) {
        const seconds = startupSecondsOf(container);
        if (seconds === undefined || seconds >= podStartSeconds) continue;
        yield {
          address,
          message: `period_seconds × failure_threshold of the startup probe must be at least ${podStartSeconds}, got ${seconds}`,
        };
      }
      for (const { resource, values } of releasesOf(change)) {
        const compiles = at(values, "triton", "backend") === "tensorrt";
        const gpus = number(at(values, "triton", "gpus")) ?? 0;
        const { config } =
          deployedConfigs(change).find((it) => it.address === resource.address) ?? {};
        const instances =
          config === undefined ? Math.max(1, gpus) : executionInstances(config, gpus);
        const required = tritonStartSeconds(compiles && gpus > 0, instances);
        const seconds = number(at(values, "triton", "startSeconds")) ?? required;
        if (at(values, "triton", "enabled") === false || seconds >= required) continue;
        yield {
          address: resource.address,
          message: `triton.startSeconds must be at least ${required}, the time to load the model, got ${seconds}`,
        };
      }
    },
  }),
  rule({
    id: "progress-deadline",
    severity: "error",
    fix: "raise progress_deadline_seconds above the time of the startup probe",
    find: each(deploymentsOf, (deployment) => {
      const startup = podContainers(podOf(deployment).pod).map(startupSecondsOf);
      const startSeconds = Math.max(0, ...startup.filter((seconds) => seconds !== undefined));
      const deadline = number(specOf(deployment).progress_deadline_seconds) ?? 600;
      return startSeconds === 0 || deadline > startSeconds
        ? undefined
        : `progress_deadline_seconds must be more than ${startSeconds}, the time of the startup probe, got ${deadline}`;
    }),
  }),
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

/** Start period in seconds; Docker's default is 0. */
function startPeriodOf({ resource, values }: ServiceContainer): number | undefined {
  const isChecked = !isMissing(resource, "healthcheck");
  const isAbsent = isMissing(resource, "healthcheck", "start_period");
  return isChecked && isAbsent ? 0 : goSeconds(at(values.healthcheck, "start_period"));
}

/** Time until a Triton server is ready, from its model configuration. */
function startSecondsOf(change: StackChange, triton: ServiceContainer): number | undefined {
  const deployed = configOf(change, triton);
  if (deployed?.config === undefined) return undefined;
  const gpus = visibleGpus(change, triton).length;
  const compiles = tensorrtOf(deployed.config) !== undefined && gpus > 0;
  return tritonStartSeconds(compiles, executionInstances(deployed.config, gpus));
}

/** A readiness route, alone or in a command. */
const readinessPath = new RegExp(
  `(^|//[^/\\s]*|[^\\w/-])(${embedPaths.readyz}|${oipPaths.ready}|/v2/models/[^\\s?]*/ready)/?([?#\\s"'].*)?$`,
  "s",
);

interface ProbeTarget {
  /** Equal for probes with equal targets. */
  readonly identity: string;
  /** Printable, without secrets. */
  readonly text: string;
  readonly isReadiness: boolean;
}

/** Returns the request of a probe; `undefined` for a TCP probe, because an open port does not show that a model is ready. */
function probeTargetOf(probe: Values | undefined): ProbeTarget | undefined {
  const path = text(at(probe, "http_get", "path"));
  if (path !== undefined) {
    return { identity: path, text: pathOnly(path), isReadiness: readinessPath.test(path) };
  }
  const command = texts(at(probe, "exec", "command"));
  if (command.length > 0) {
    return {
      identity: JSON.stringify(command),
      text: commandText(command),
      isReadiness: command.some((word) => readinessPath.test(word)),
    };
  }
  const [port, service = ""] = ["port", "service"].map((name) => text(at(probe, "grpc", name)));
  if (port === undefined) return undefined;
  return { identity: `${port}/${service}`, text: `gRPC at ${port}`, isReadiness: false };
}

const url = /\bhttps?:\/\/(?:[^/\s@]*@)?(\[[^\]]*\]|[^:/\s"'?#]+)/g;
const ownHost = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)$/;

/** Host of a probe's target, if it is not the pod itself. */
function otherHost(probe: Values | undefined): string | undefined {
  const hosts = [
    text(at(probe, "http_get", "host")),
    text(at(probe, "tcp_socket", "host")),
    ...texts(at(probe, "exec", "command")).flatMap((word) =>
      [...word.matchAll(url)].map(([, host]) => host),
    ),
  ];
  return hosts.find((host) => host !== undefined && host !== "" && !ownHost.test(host));
}

function startupSecondsOf(container: Values): number | undefined {
  const probe = block(container.startup_probe);
  if (probe === undefined) return undefined;
  // defaults of Kubernetes
  return (number(probe.period_seconds) ?? 10) * (number(probe.failure_threshold) ?? 3);
}

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
