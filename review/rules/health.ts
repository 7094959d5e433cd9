import { stopSeconds } from "../../constructs/checks/stop-times.ts";
import { tritonStartSeconds } from "../../constructs/triton-times.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { executionInstances } from "../../contract/model-config.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import {
  graceSeconds as podGraceSeconds,
  startSeconds as podStartSeconds,
} from "../../contract/pods.ts";
import type { StackChange, Values } from "../input/change.ts";
import { containerPath, tritonOnnx } from "./example-paths.ts";
import { deploymentsOf, podContainers, podOf, releasesOf, specOf } from "./facts.ts";
import { configOf, deployedConfigs, tensorrtOf } from "./model-configs.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import {
  option,
  type ServiceContainer,
  serviceContainers,
  visibleGpus,
} from "./service-containers.ts";
import {
  at,
  block,
  blocks,
  commandText,
  goSeconds,
  isMissing,
  number,
  pathOnly,
  text,
  texts,
} from "./values.ts";

const podPath = (...path: readonly (string | number)[]) =>
  [
    ...["resource", "kubernetes_deployment_v1", "embed/deployment"],
    ...["spec", "template", "spec", ...path],
  ] as const;

/** Start, readiness and stop of services. */
export const healthRules: readonly ReviewRule[] = [
  rule({
    id: "health-check",
    severity: "error",
    title: "Every service has a health check.",
    rationale:
      "Without a health check, a deployment succeeds as soon as the process starts, even if the model never loads.",
    inputs: "`healthcheck` of containers that keep running.",
    fix: "add a healthcheck that requests the server's readiness route",
    example: {
      stack: "single-gpu",
      message: "healthcheck must be set, got nothing",
      edits: [{ path: containerPath(tritonOnnx, "healthcheck"), failing: undefined }],
    },
    find: each(serviceContainers, ({ resource, values }) => {
      if (isMissing(resource, "healthcheck")) return "healthcheck must be set, got nothing";
      return texts(at(values.healthcheck, "test"))[0] === "NONE"
        ? "healthcheck.test must ask the server, got NONE"
        : undefined;
    }),
  }),
  rule({
    id: "health-check-readiness",
    severity: "warning",
    title: "Health checks test readiness.",
    rationale:
      "A liveness route succeeds while the model is loading and after loading has failed; only readiness shows that the service can answer.",
    inputs: `The route in \`healthcheck.test\`: \`${embedPaths.readyz}\` of the embed server, \`${oipPaths.ready}\` of Triton.`,
    fix: `request ${embedPaths.readyz} for the embed server, ${oipPaths.ready} for Triton`,
    example: {
      stack: "single-gpu",
      message:
        "healthcheck.test should request /readyz, got 'CMD node /app/dist/healthcheck.js http://127.0.0.1:8002/healthz'",
      edits: [
        {
          path: containerPath("embed/container", "healthcheck", "test", 3),
          failing: "http://127.0.0.1:8002/healthz",
          passing: "http://127.0.0.1:8002/readyz",
        },
      ],
    },
    find: each(serviceContainers, ({ kind, values }) => {
      const path = { embed: embedPaths.readyz, triton: oipPaths.ready, other: undefined }[kind];
      const test = texts(at(values.healthcheck, "test"));
      return path === undefined || test.length === 0 || test.some((word) => word.includes(path))
        ? undefined
        : `healthcheck.test should request ${path}, got '${commandText(test)}'`;
    }),
  }),
  rule({
    id: "start-period",
    severity: "error",
    title: "The start period allows the model to load.",
    rationale:
      "Failed checks are ignored during the start period. With an empty cache, TensorRT compiles an engine for minutes, once per execution instance; if the period is shorter, the deployment fails while Triton is still loading.",
    inputs:
      "`healthcheck.start_period` of a Triton (default 0 s), compared with the time allowed for its model configuration: 120 s, plus 300 s per execution instance that TensorRT compiles.",
    fix: "set healthcheck.start_period to at least that time",
    example: {
      stack: "single-gpu",
      message:
        "healthcheck.start_period must be at least 420 s, the time to load the model, got 30 s",
      edits: [
        {
          path: containerPath("triton-trt/container", "healthcheck", "start_period"),
          failing: "30s",
          passing: "7m0s",
        },
      ],
    },
    find: each(serviceContainers, (triton, change) => {
      const least = startSecondsOf(change, triton);
      const given = startPeriodOf(triton);
      return least === undefined || given === undefined || given >= least
        ? undefined
        : `healthcheck.start_period must be at least ${least} s, the time to load the model, got ${given} s`;
    }),
  }),
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
      message: "destroy_grace_seconds must be at least 35 (30 of grace + 5), got 10",
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
        const given =
          kind === "triton"
            ? option(command, "exit-timeout-secs")
            : env.get("SHUTDOWN_GRACE_SECONDS");
        const grace = kind === "other" ? undefined : (number(given) ?? 30);
        if (grace === undefined) continue;
        const least = stopSeconds(grace);
        for (const prop of ["stop_timeout", "destroy_grace_seconds"] as const) {
          const seconds = number(values[prop]);
          if (seconds === undefined ? !isMissing(resource, prop) : seconds >= least) continue;
          yield {
            address,
            message: `${prop} must be at least ${least} (${grace} of grace + ${least - grace}), got ${seconds ?? "nothing"}`,
          };
        }
      }
      for (const deployment of deploymentsOf(change)) {
        const { pod, labels } = podOf(deployment);
        if (labels["app.kubernetes.io/name"] !== "clipstack") continue;
        const [first] = podContainers(pod);
        const grace = graceOfPod(first);
        const preStop = preStopSecondsOf(first);
        const least = stopSeconds(grace, preStop);
        // Kubernetes' own default
        const seconds = number(pod.termination_grace_period_seconds) ?? 30;
        if (seconds >= least) continue;
        yield {
          address: deployment.address,
          message: `termination_grace_period_seconds must be at least ${least} (${preStop} before the stop + ${grace} of grace + ${least - grace - preStop}), got ${seconds}`,
        };
      }
    },
  }),
  rule({
    id: "pod-probes",
    severity: "error",
    title: "Pods have startup, readiness and liveness probes.",
    rationale:
      "Without a readiness probe, pods receive requests before their model is loaded; without a liveness probe, a hanging process is not restarted; without a startup probe, the liveness probe kills a pod that is loading its model.",
    inputs: "The three probes of clipstack's pods. The chart's probes are tested with the chart.",
    fix: "add the missing probe, as in constructs/kubernetes/inference-deployment.ts",
    example: {
      stack: "kind-local",
      message: "readiness_probe must be set, got nothing",
      edits: [{ path: podPath("container", 0, "readiness_probe"), failing: undefined }],
    },
    find: each(ownPodContainers, ({ container }) =>
      ["startup_probe", "readiness_probe", "liveness_probe"]
        .filter((probe) => block(container[probe]) === undefined)
        .map((probe) => `${probe} must be set, got nothing`),
    ),
  }),
  rule({
    id: "liveness-independent",
    severity: "error",
    title: "Liveness probes do not depend on readiness.",
    rationale:
      "The kubelet restarts containers whose liveness probe fails. If it fails while the model loads or Triton is unavailable, all pods restart at once, which extends a short outage.",
    inputs: `Target of the liveness probe: \`${embedPaths.readyz}\`, \`${oipPaths.ready}\` and the readiness of a model, over HTTP or in a command, or the target of the readiness probe.`,
    fix: `request ${embedPaths.healthz} for the embed server, ${oipPaths.live} for Triton`,
    example: {
      stack: "kind-local",
      message: "the liveness probe must not test readiness, got '/readyz'",
      edits: [
        {
          path: podPath("container", 0, "liveness_probe", "http_get", "path"),
          failing: "/readyz",
          passing: "/healthz",
        },
      ],
    },
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
    id: "startup-budget",
    severity: "error",
    title: "The startup probe allows the model to load.",
    rationale:
      "After the last failed startup probe, the kubelet restarts the container, which starts loading the model again and never becomes ready.",
    inputs:
      "`period_seconds` × `failure_threshold` of the startup probe, and `startSeconds` in the chart values, compared with the time allowed for loading the model.",
    fix: "raise failure_threshold of the startup probe (startSeconds in the chart values)",
    example: {
      stack: "kind-local",
      message:
        "period_seconds × failure_threshold of the startup probe must be at least 120, got 20",
      edits: [
        {
          path: podPath("container", 0, "startup_probe", "failure_threshold"),
          failing: 10,
          passing: 60,
        },
      ],
    },
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
        const least = tritonStartSeconds(compiles && gpus > 0, instances);
        const given = number(at(values, "triton", "startSeconds"));
        if (at(values, "triton", "enabled") === false || given === undefined || given >= least) {
          continue;
        }
        yield {
          address: resource.address,
          message: `triton.startSeconds must be at least ${least}, the time to load the model, got ${given}`,
        };
      }
    },
  }),
  rule({
    id: "progress-deadline",
    severity: "error",
    title: "A rollout fails only after its pods had time to start.",
    rationale:
      "After `progressDeadlineSeconds` without progress, the rollout and the apply fail. The default is 10 minutes; compiling engines can take longer.",
    inputs: "`progress_deadline_seconds` of a Deployment, compared with its startup probe.",
    fix: "raise progress_deadline_seconds above the time of the startup probe",
    example: {
      stack: "kind-local",
      message:
        "progress_deadline_seconds must be more than 120, the time of the startup probe, got 60",
      edits: [
        {
          path: [
            ...["resource", "kubernetes_deployment_v1", "embed/deployment"],
            ...["spec", "progress_deadline_seconds"],
          ],
          failing: 60,
          passing: 300,
        },
      ],
    },
    find: each(deploymentsOf, (deployment) => {
      const startup = podContainers(podOf(deployment).pod).map(startupSecondsOf);
      const least = Math.max(0, ...startup.filter((seconds) => seconds !== undefined));
      const given = number(specOf(deployment).progress_deadline_seconds) ?? 600;
      return least === 0 || given > least
        ? undefined
        : `progress_deadline_seconds must be more than ${least}, the time of the startup probe, got ${given}`;
    }),
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
      edits: [{ path: podPath("container", 0, "lifecycle"), failing: undefined }],
    },
    find: each(ownPodContainers, ({ container }) =>
      block(at(container.lifecycle, "pre_stop")) === undefined
        ? "lifecycle.pre_stop should be set, got nothing"
        : undefined,
    ),
  }),
];

/** Docker waits for nothing where no start period is given. */
function startPeriodOf({ resource, values }: ServiceContainer): number | undefined {
  const isChecked = !isMissing(resource, "healthcheck");
  const isAbsent = isMissing(resource, "healthcheck", "start_period");
  return isChecked && isAbsent ? 0 : goSeconds(at(values.healthcheck, "start_period"));
}

/** A path that answers only when a model is loaded, also in a command that asks it. */
const readinessPath = new RegExp(
  `(^|//[^/\\s]*|[^\\w/-])(${embedPaths.readyz}|${oipPaths.ready}|/v2/models/[^\\s?]*/ready)/?([?#\\s"'].*)?$`,
  "s",
);

interface ProbeTarget {
  readonly asks: "the path" | "the command" | "the service";
  /** The same for two probes that ask the same. */
  readonly identity: string;
  /** As a reader may see it. */
  readonly text: string;
  readonly isReadiness: boolean;
}

/** What a probe asks. Whether a port is open says nothing of a model. */
export function probeTargetOf(probe: Values | undefined): ProbeTarget | undefined {
  const path = text(at(probe, "http_get", "path"));
  if (path !== undefined) {
    const isReadiness = readinessPath.test(path);
    return { asks: "the path", identity: path, text: pathOnly(path), isReadiness };
  }
  const command = texts(at(probe, "exec", "command"));
  if (command.length > 0) {
    return {
      asks: "the command",
      identity: JSON.stringify(command),
      text: commandText(command),
      isReadiness: command.some((word) => readinessPath.test(word)),
    };
  }
  const [port, service = ""] = ["port", "service"].map((name) => text(at(probe, "grpc", name)));
  if (port === undefined) return undefined;
  const identity = `${port}/${service}`;
  return { asks: "the service", identity, text: `gRPC at ${port}`, isReadiness: false };
}

/** Time until a Triton is ready, from its model configuration. */
function startSecondsOf(change: StackChange, triton: ServiceContainer): number | undefined {
  if (triton.kind !== "triton") return undefined;
  const deployed = configOf(change, triton);
  if (deployed?.config === undefined) return undefined;
  const gpus = visibleGpus(change, triton).length;
  const compiles = tensorrtOf(deployed.config) !== undefined && gpus > 0;
  return tritonStartSeconds(compiles, executionInstances(deployed.config, gpus));
}

export function ownPodContainers(
  change: StackChange,
): readonly { readonly address: string; readonly container: Values }[] {
  return deploymentsOf(change).flatMap((deployment) => {
    const { pod, labels } = podOf(deployment);
    if (labels["app.kubernetes.io/name"] !== "clipstack") return [];
    return podContainers(pod).map((container) => ({ address: deployment.address, container }));
  });
}

function startupSecondsOf(container: Values): number | undefined {
  const probe = block(container.startup_probe);
  if (probe === undefined) return undefined;
  // Kubernetes' own defaults
  return (number(probe.period_seconds) ?? 10) * (number(probe.failure_threshold) ?? 3);
}

function graceOfPod(container: Values | undefined): number {
  // of a name that is there twice, the last one counts
  const given = blocks(container?.env).findLast(({ name }) => name === "SHUTDOWN_GRACE_SECONDS");
  const flag = option(texts(container?.args), "exit-timeout-secs");
  return number(given?.value) ?? number(flag) ?? podGraceSeconds;
}

function preStopSecondsOf(container: Values | undefined): number {
  const command = texts(at(container?.lifecycle, "pre_stop", "exec", "command"));
  return command[0] === "sleep" ? (number(command[1]) ?? 0) : 0;
}
