import {
  type ClusterDeployment,
  type ClusterInspection,
  type ClusterPod,
  isReady,
  podProblem,
} from "../../artefact/cluster-objects.ts";
import type { Inspection } from "../../artefact/docker-inspect.ts";
import type { RunningInstance } from "../../artefact/simulation.ts";
import { loopback } from "../../artefact/simulation-types.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { reason } from "../../target/requests/http-client.ts";
import type { TargetService } from "../../target/service/target-service.ts";
import type { Check } from "./check.ts";
import { resultOf } from "./check-result.ts";
import { blockResult, type DeclaredBlock } from "./declared-blocks.ts";

export const startCheck: Check = {
  name: "start",
  question: "Does every process or container start, and does its health check pass?",
  runEnvironment({ environment, deployment, unavailable }) {
    if (deployment === undefined) return [];
    const { blocks, inspection } = deployment;
    const results = blocks.map((block) => checkContainerState(environment, block, inspection));
    for (const { outcome, service } of results) if (outcome === "fail") unavailable.add(service);
    return results;
  },
  async runService(service, { deployment, unavailable }) {
    const { name } = service.workload.service;
    if (deployment === undefined) {
      if (service.instances.length === 0) {
        unavailable.add(name);
        return [resultOf(service, "start", "skip", "not run: see the notes of the environment")];
      }
      if (service.instances.some(({ start }) => !start.ok)) unavailable.add(name);
      return checkStart(service);
    }
    if (deployment.cluster === undefined) return [];
    const result = checkPods(service, deployment.cluster);
    // a Service responds as long as one pod is ready
    if (result.measured.ready === 0) unavailable.add(name);
    return [result];
  },
};

/** Reports the start of each process, and the result of every synthesized probe afterwards. */
export async function checkStart(service: TargetService): Promise<readonly CheckResult[]> {
  const results = service.instances.map(({ instance, start }) =>
    start.ok
      ? resultOf(
          service,
          "start",
          "pass",
          `${instance.name} was ready after ${(start.readyMs / 1_000).toFixed(1)} s`,
          { measured: { readyMs: Math.round(start.readyMs) } },
        )
      : resultOf(service, "start", "fail", `${instance.name} ${start.message}`),
  );
  for (const probe of service.workload.probes) {
    if (probe.http === undefined) {
      const message = `${probe.kind} is not an HTTP probe of the container: ${probe.text}`;
      results.push(resultOf(service, "start", "skip", message));
      continue;
    }
    for (const running of service.instances.filter(({ start }) => start.ok)) {
      const problem = await probeProblem(service, running, probe.http);
      if (problem === undefined) continue;
      const message = `${running.instance.name}: ${probe.kind} (${probe.text}) ${problem}`;
      results.push(resultOf(service, "start", "fail", message));
    }
  }
  return results;
}

const probeTimeoutMs = 10_000;

/** Reason why a probe fails; undefined if it passes or nothing listens on its port, which `wiring` reports. */
async function probeProblem(
  service: TargetService,
  { instance }: RunningInstance,
  { port, path }: { readonly port: number; readonly path: string },
): Promise<string | undefined> {
  const local = instance.listeners.find((listener) => listener.internal === port)?.local;
  if (local === undefined) return undefined;
  try {
    const url = `http://${loopback}:${local}${path}`;
    const { status } = await service.http.send(url, { timeoutMs: probeTimeoutMs });
    // a probe passes from 200 to 399, as in Kubernetes
    return status >= 200 && status < 400 ? undefined : `gets status ${status}`;
  } catch (error) {
    return `fails: ${reason(error)}`;
  }
}

/** Checks that a container runs and is healthy, or that a one-off container succeeded. */
export function checkContainerState(
  environment: string,
  block: DeclaredBlock,
  inspection: Inspection,
  now = Date.now(),
): CheckResult {
  const report = (
    outcome: CheckResult["outcome"],
    message: string,
    measured?: Record<string, number>,
  ) => blockResult(block, environment, "start", outcome, message, measured);
  if (!inspection.ok) return report("skip", inspection.message);
  const { declared } = block;
  const found = inspection.containers.get(declared.name);
  if (found === undefined) return report("fail", `container '${declared.name}' must exist`);
  const { State, RestartCount } = found;
  const ended = `${State.OOMKilled ? "ran out of memory, " : ""}exit code ${State.ExitCode}${State.Error === "" ? "" : `: ${State.Error}`}`;
  if (!declared.must_run) {
    if (State.Status === "running") return report("skip", "still running");
    return State.ExitCode === 0
      ? report("pass", "exited with code 0")
      : report("fail", `must exit with code 0, got ${ended}`);
  }
  if (State.Status !== "running")
    return report("fail", `must be running, got ${State.Status}, ${ended}`);
  const health = State.Health?.Status;
  if (declared.healthcheck.length > 0 && health !== "healthy") {
    const probe = State.Health?.Log.at(-1)?.Output.trim().split("\n").at(-1) ?? "";
    return report(
      "fail",
      `must be healthy, got ${health ?? "no health check"}${probe === "" ? "" : `: ${probe}`}`,
    );
  }
  const upSeconds = Math.max(0, Math.round((now - Date.parse(State.StartedAt)) / 1_000));
  const restarts = RestartCount === 0 ? "" : `, restarted ${RestartCount} times`;
  return report(
    "pass",
    `running${health === undefined ? "" : " and healthy"} for ${upSeconds} s${restarts}`,
    { upSeconds, restarts: RestartCount },
  );
}

/** Checks that the pods of a Deployment are ready, and that none ran out of memory. */
export function checkPods(
  service: TargetService,
  inspection: ClusterInspection,
  now = Date.now(),
): CheckResult {
  const report = (
    outcome: CheckResult["outcome"],
    message: string,
    measured: Record<string, number> = {},
  ) => resultOf(service, "start", outcome, message, { measured });
  if (!inspection.ok) return report("skip", inspection.message);
  const { name } = service.workload;
  const deployment = [...inspection.found].find(
    ([{ manifest }, object]) =>
      manifest.kind === "Deployment" && manifest.metadata.name === name && object !== undefined,
  )?.[1];
  if (deployment === undefined)
    return report("fail", `Deployment '${name}' must exist`, { ready: 0 });
  const { spec } = deployment as ClusterDeployment;
  const pods = inspection.pods.get(name) ?? [];
  const ready = pods.filter(isReady).length;
  const statuses = pods.flatMap(({ status }) => status?.containerStatuses ?? []);
  const restarts = statuses.reduce((sum, { restartCount }) => sum + restartCount, 0);
  const measured = { pods: pods.length, ready, restarts };
  const trouble = pods.map(podProblem).find((it) => it !== undefined);
  const problem = trouble === undefined ? "" : `: ${trouble}`;
  if (ready < Math.max(1, spec.replicas)) {
    return report("fail", `${spec.replicas} pods must be ready, got ${ready}${problem}`, measured);
  }
  const killed = statuses.find(
    ({ state, lastState }) =>
      state?.terminated?.reason === "OOMKilled" || lastState?.terminated?.reason === "OOMKilled",
  );
  if (killed !== undefined) {
    return report("fail", `${killed.name} ran out of memory and was restarted`, measured);
  }
  const ages = pods.map((pod) => ageSeconds(pod, now)).filter((age) => age !== undefined);
  const since = ages.length === 0 ? "" : ` for at least ${Math.min(...ages)} s`;
  return report(
    "pass",
    `${ready} of ${spec.replicas} pods are ready${since}${restarts === 0 ? "" : `, restarted ${restarts} times`}`,
    measured,
  );
}

function ageSeconds({ status }: ClusterPod, now: number): number | undefined {
  const since = status?.conditions?.find(({ type }) => type === "Ready")?.lastTransitionTime;
  return since === undefined
    ? undefined
    : Math.max(0, Math.round((now - Date.parse(since)) / 1_000));
}
