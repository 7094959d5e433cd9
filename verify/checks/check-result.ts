import { describe } from "../../artefact/workload.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { reason } from "../../target/requests/http-client.ts";
import {
  type EndpointTarget,
  endpointsOf,
  type TargetService,
} from "../../target/service/target-service.ts";

type ResultDetails = Partial<Pick<CheckResult, "endpoint" | "model" | "measured" | "images">>;

/** Finding of a check on one endpoint. */
export interface EndpointFinding extends Omit<ResultDetails, "endpoint" | "model"> {
  /** @default "pass" */
  readonly outcome?: "pass" | "fail";
  readonly message: string;
}

/** Model of a target for its result; empty if the service has only one. */
export function modelOf(
  service: TargetService,
  { spec }: Pick<EndpointTarget, "spec">,
): { readonly model?: string } {
  return service.models.length > 1 ? { model: spec.name } : {};
}

/** Runs a check on each endpoint, by default on those of images, once per model. An endpoint whose check throws fails with the error message. */
export async function checkEachEndpoint(
  service: TargetService,
  id: string,
  check: (target: EndpointTarget) => Promise<EndpointFinding>,
  targets = endpointsOf(service),
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of targets) {
    const failed = (error: unknown) => ({ outcome: "fail", message: reason(error) }) as const;
    const { outcome = "pass", message, ...more } = await check(target).catch(failed);
    const details = { endpoint: target.endpointName, ...modelOf(service, target), ...more };
    results.push(resultOf(service, id, outcome, message, details));
  }
  return results;
}

/** `single-gpu/embed/embed-http`: what a result is about. */
export function locationOf({ environment, service, endpoint, model }: CheckResult): string {
  return [environment, service, endpoint, model].filter((part) => part !== undefined).join("/");
}

/** Check result with the common fields of the service. */
export function resultOf(
  service: TargetService,
  id: string,
  outcome: CheckResult["outcome"],
  message: string,
  more: ResultDetails = {},
): CheckResult {
  return {
    id,
    environment: service.environment,
    service: service.workload.service.name,
    resource: describe(service.workload),
    outcome,
    message,
    measured: {},
    ...more,
  };
}
