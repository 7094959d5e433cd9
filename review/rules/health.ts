import { tritonStartSeconds } from "../../constructs/models/triton-times.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { executionInstances } from "../../contract/model-config.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { configOf, tensorrtOf } from "../facts/model-configs.ts";
import {
  type ServiceContainer,
  serviceContainers,
  tritonContainers,
  visibleGpus,
} from "../facts/service-containers.ts";
import { at, commandText, goSeconds, isMissing, texts } from "../facts/values.ts";
import type { StackChange } from "../input/change.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

/** Health checks of containers. */
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
];

/** Start period in seconds; Docker's default is 0. */
function startPeriodOf({ resource, values }: ServiceContainer): number | undefined {
  const isChecked = !isMissing(resource, "healthcheck");
  const isAbsent = isMissing(resource, "healthcheck", "start_period");
  return isChecked && isAbsent ? 0 : goSeconds(at(values.healthcheck, "start_period"));
}

/** Time until a Triton is ready, from its model configuration. */
function startSecondsOf(change: StackChange, triton: ServiceContainer): number | undefined {
  const deployed = configOf(change, triton);
  if (deployed?.config === undefined) return undefined;
  const gpus = visibleGpus(change, triton).length;
  const compiles = tensorrtOf(deployed.config) !== undefined && gpus > 0;
  return tritonStartSeconds(compiles, executionInstances(deployed.config, gpus));
}
