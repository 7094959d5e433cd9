import { tritonStartSeconds } from "../../constructs/triton-times.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { executionInstances } from "../../contract/model-config.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import type { StackChange } from "../input/change.ts";
import { containerPath, tritonOnnx } from "./example-paths.ts";
import { configOf, tensorrtOf } from "./model-configs.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import {
  type ServiceContainer,
  serviceContainers,
  tritonContainers,
  visibleGpus,
} from "./service-containers.ts";
import { at, commandText, goSeconds, isMissing, texts } from "./values.ts";

/** Health checks of containers. */
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
        ? "healthcheck.test must check the server, got NONE"
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
