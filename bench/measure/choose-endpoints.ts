import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import { UserError } from "../../contract/user-error.ts";
import type { OpenTarget } from "../../target/open/open-target.ts";
import { decodesWithDali, differenceLimit } from "../../target/reference/parity.ts";
import type { ReferenceItem } from "../../target/reference/reference.ts";
import { payloadEndpointsOf, type TargetEndpoint } from "../../target/requests/target-endpoint.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import type { BenchContext } from "./bench-events.ts";
import { checkBenchParity } from "./bench-parity.ts";

/** Endpoint and payload format of the command line or of a study. */
export interface RequestedEndpoint extends BenchEndpoint {
  /** Whether the endpoint was requested by its exact name and must therefore be available. */
  readonly byName: boolean;
}

/** Endpoint to measure, and the target that serves it. */
export interface MeasuredEndpoint {
  readonly target: TargetEndpoint;
  readonly endpoint: BenchEndpoint;
}

/** Selects the available endpoints among the requested ones, each on the first service that offers it. */
export function chooseEndpoints(
  requested: readonly RequestedEndpoint[],
  { targets }: Pick<OpenTarget, "targets">,
  onNotice: (text: string) => void,
): readonly MeasuredEndpoint[] {
  const missing: string[] = [];
  const chosen = requested.flatMap(({ byName, ...endpoint }): MeasuredEndpoint[] => {
    const name = benchEndpointName(endpoint);
    const offering = targets.filter((target) =>
      payloadEndpointsOf(target).some((endpoint) => benchEndpointName(endpoint) === name),
    );
    const [target, ...others] = offering;
    if (target === undefined) {
      if (byName) missing.push(name);
      return [];
    }
    if (others.length > 0) {
      onNotice(
        `${name}: measured on ${target.service}; also offered by ${others.map(({ service }) => service).join(", ")}`,
      );
    }
    return [{ target, endpoint }];
  });
  if (missing.length > 0 || chosen.length === 0) {
    const names = targets.flatMap((target) => payloadEndpointsOf(target).map(benchEndpointName));
    const available = [...new Set(names)].join(", ") || "no endpoint";
    const unavailable = missing.length > 0 ? missing : requested.map(benchEndpointName);
    throw new UserError(
      `${targets[0]?.environment ?? "nothing"} does not offer ${unavailable.join(", ")}; available: ${available}`,
    );
  }
  return chosen;
}

/**
 * Compares the embeddings of endpoints with the local reference, and records the results.
 *
 * @returns Endpoints that passed; only they are measured.
 */
export async function gateParity(
  context: BenchContext,
  record: BenchRecord,
  endpoints: readonly MeasuredEndpoint[],
  reference: readonly ReferenceItem[],
): Promise<readonly MeasuredEndpoint[]> {
  const passed: MeasuredEndpoint[] = [];
  for (const measured of endpoints) {
    context.signal.throwIfAborted();
    const { target, endpoint } = measured;
    const { environment } = target;
    context.onEvent({ kind: "phase", environment, text: `parity: ${benchEndpointName(endpoint)}` });
    const { target: kind } = record.subject;
    const result = await checkBenchParity(target, endpoint, reference, {
      limit: differenceLimit(
        kind,
        target.endpoint,
        target.precision === "fp16" || decodesWithDali(kind, endpoint.payload, target.jpegKind),
      ),
      signal: context.signal,
    });
    record.parity.push(result);
    context.onEvent({ kind: "parity", result });
    if (result.passed) passed.push(measured);
  }
  return passed;
}
