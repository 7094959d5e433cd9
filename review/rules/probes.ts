import { tritonStartSeconds } from "../../constructs/models/triton-times.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { executionInstances } from "../../contract/model-config.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { startSeconds as podStartSeconds } from "../../contract/pods.ts";
import { deployedConfigs } from "../facts/model-configs.ts";
import { at, block, blocks, commandText, number, pathOnly, text, texts } from "../facts/values.ts";
import {
  deploymentsOf,
  ownPodContainers,
  podContainers,
  podOf,
  releasesOf,
  specOf,
} from "../facts/workloads.ts";
import type { Values } from "../input/change.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

/** Probes of pods and the time that they allow for the start. */
export const probeRules: readonly ReviewRule[] = [
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
];

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

/** Target of a probe; `undefined` for an open port, which reveals nothing about a model. */
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
