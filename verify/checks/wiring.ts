import { existsSync } from "node:fs";
import { join } from "node:path";
import type { RunningInstance } from "../../artefact/simulation.ts";
import { loopback, type SimulationPlan } from "../../artefact/simulation-types.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { reason } from "../../bench/run/http-client.ts";
import { resultOf, type ServiceUnderTest } from "../../bench/run/service-under-test.ts";
import { readModelConfig } from "../../client/triton/model-config.ts";
import { checkModelConfig } from "../../contract/model-config-check.ts";
import { parseTritonArgs } from "../../contract/triton-flags.ts";

/** What the plan found in the artefact, one result for each fault, or one that says there is none. */
export function checkWiring(
  service: ServiceUnderTest,
  plan: SimulationPlan,
): readonly CheckResult[] {
  const { workload } = service;
  const faults = [
    ...plan.faults.filter((fault) => fault.workload === workload).map(({ message }) => message),
    ...missingVariants(service),
    ...wrongConfigurations(service),
  ];
  if (faults.length > 0) {
    return faults.map((message) => resultOf(service, "wiring", "fail", message));
  }
  const ports = workload.published.map(({ external, internal }) => `${external} → ${internal}`);
  return [
    resultOf(
      service,
      "wiring",
      "pass",
      ports.length === 0 ? "publishes no port" : `publishes ${ports.join(", ")}`,
    ),
  ];
}

/** Variants that the model repository does not have: Triton takes `config.pbtxt` in their place and says nothing. */
function missingVariants({ workload, instances }: ServiceUnderTest): readonly string[] {
  const missing = instances.flatMap(({ instance }) => {
    if (instance.role !== "triton") return [];
    const flags = parseTritonArgs(instance.args.slice(1));
    const variant = flags["model-config-name"];
    const model = join(flags["model-repository"], workload.service.model);
    if (variant === undefined || !existsSync(model)) return [];
    const file = join("configs", `${variant}.pbtxt`);
    return existsSync(join(model, file))
      ? []
      : [`--model-config-name=${variant}: ${workload.service.model} has no ${file}`];
  });
  return [...new Set(missing)];
}

/** What is wrong with the model configurations that the artefact has as text: Triton accepts some of it in silence. */
function wrongConfigurations({ workload }: ServiceUnderTest): readonly string[] {
  const texts = workload.volumes.flatMap(({ contents }) => Object.entries(contents?.files ?? {}));
  return texts.flatMap(([name, text]) => {
    if (!name.endsWith(".pbtxt")) return [];
    try {
      const config = readModelConfig(text, name);
      const { model } = workload.service;
      const other = config.name === model ? [] : [`name must be ${model}, got ${config.name}`];
      return [...other, ...checkModelConfig(config)].map((problem) => `${name}: ${problem}`);
    } catch (error) {
      return [reason(error)];
    }
  });
}

/** How the start of each process went, and whether every synthesized probe passes afterwards. */
export async function checkStart(service: ServiceUnderTest): Promise<readonly CheckResult[]> {
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
      const message = `its ${probe.kind} names no URL of the container: ${probe.text}`;
      results.push(resultOf(service, "start", "skip", message));
      continue;
    }
    for (const running of service.instances.filter(({ start }) => start.ok)) {
      const problem = await probeProblem(service, running, probe.http);
      if (problem === undefined) continue;
      const message = `${running.instance.name}: its ${probe.kind} (${probe.text}) ${problem}`;
      results.push(resultOf(service, "start", "fail", message));
    }
  }
  return results;
}

const probeTimeoutMs = 10_000;

/** Why a probe does not pass; nothing when it does, or when nobody listens there, which is a fault of the wiring. */
async function probeProblem(
  service: ServiceUnderTest,
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
