import type { EmbeddedPlan, Instance } from "./embedded-plan.ts";
import type { CheckResult } from "./record.ts";
import { resultOf, type ServiceUnderTest } from "./service-under-test.ts";

/** What the plan found in the artefact, one result for each fault, or one that says there is none. */
export function checkWiring(service: ServiceUnderTest, plan: EmbeddedPlan): readonly CheckResult[] {
  const { workload } = service;
  const faults = plan.faults.filter((fault) => fault.workload === workload);
  if (faults.length > 0) {
    return faults.map(({ message }) => resultOf(service, "wiring", "fail", message));
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

/** How the start of each process went, and what of the health checks could not be asked. */
export function checkStart(service: ServiceUnderTest): readonly CheckResult[] {
  const results = service.instances.map(({ instance, start }) =>
    start.ok
      ? resultOf(
          service,
          "start",
          "pass",
          `${instance.name} was ready after ${(start.readyMs / 1_000).toFixed(1)} s`,
          {
            measured: { readyMs: Math.round(start.readyMs) },
          },
        )
      : resultOf(service, "start", "fail", `${instance.name} ${start.message}`),
  );
  const silent = service.workload.probes.filter((probe) => probe.http === undefined);
  return [
    ...results,
    ...silent.map(({ kind, text }) =>
      resultOf(
        service,
        "start",
        "skip",
        `its ${kind} names no URL of the container (${text}); waited for ${shownPath(service.instances[0]?.instance)} instead`,
      ),
    ),
  ];
}

function shownPath(instance: Instance | undefined): string {
  return instance === undefined ? "readiness" : new URL(instance.readyUrl).pathname;
}
