import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import { formatRate } from "../../report/document/number-format.ts";
import type { OpenTarget } from "../../target/open/open-target.ts";
import { reason } from "../../target/requests/http-client.ts";
import type { BenchContext } from "../measure/bench-events.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import { measureLoadPoint, noteOnce } from "../measure/measure-load-point.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import type { SloSearch } from "../record/slo-search.ts";
import { sloText, trialText } from "../report/slo-section.ts";
import { type SloGoal, searchSlo, sloTolerance, trialWindows } from "./search-slo.ts";

/** Endpoint and batch size to search a rate for. */
export interface SloSubject extends MeasuredEndpoint {
  readonly batch: number;
}

/**
 * Searches the highest rate of each endpoint and batch size that meets an SLO. The closed loops of the record are the upper
 * bounds; an endpoint without one is left out, because its failure is recorded. Confirmations are added to the load points.
 *
 * @throws the signal's reason after an interrupt.
 */
export async function searchSlos(
  context: BenchContext,
  record: BenchRecord,
  goal: SloGoal,
  subjects: readonly SloSubject[],
  { readGpus }: Pick<OpenTarget, "readGpus">,
): Promise<void> {
  for (const { target, endpoint, batch } of subjects) {
    const { environment, service } = target;
    const closedLoopPerSecond = closedLoopRate(record.loadPoints, {
      ...endpoint,
      environment,
      batch,
    });
    if (closedLoopPerSecond === undefined) continue;
    const { slo, arrivals, demandPerSecond } = goal;
    const search: SloSearch = {
      ...{ environment, service, ...endpoint, imagesPerRequest: batch },
      ...{ slo, arrivals, tolerance: sloTolerance, closedLoopPerSecond, trials: [] },
      ...(demandPerSecond === undefined ? {} : { demandPerSecond }),
    };
    record.slo = [...(record.slo ?? []), search];
    const name = `${benchEndpointName(endpoint)} b${batch} ${sloText(slo)}`;
    try {
      await searchSlo(
        search,
        goal,
        async (load, purpose) => {
          context.signal.throwIfAborted();
          const text = `${name}: ${formatRate(load.ratePerSecond)} requests/s`;
          context.onEvent({ kind: "phase", environment, text });
          const settings = {
            ...context.settings,
            ...trialWindows(context.settings, slo, load.ratePerSecond),
          };
          const options = { batch, load, readGpus, onNote: noteOnce(record, context) };
          const point = await measureLoadPoint({ ...context, settings }, target, endpoint, options);
          context.signal.throwIfAborted();
          if (purpose === "confirmation") record.loadPoints.push(point);
          return point;
        },
        (trial) => context.onEvent({ kind: "notice", text: `${name}: ${trialText(slo, trial)}` }),
      );
    } catch (error) {
      context.signal.throwIfAborted();
      record.failures.push(`${name}: ${reason(error)}`);
    }
  }
}

/** Highest throughput of an endpoint's closed loops, in requests per second. */
function closedLoopRate(
  loadPoints: readonly LoadPoint[],
  of: BenchEndpoint & { readonly environment: string; readonly batch: number },
): number | undefined {
  const rates = loadPoints.flatMap((point) =>
    point.load.kind === "closed loop" &&
    point.environment === of.environment &&
    point.imagesPerRequest === of.batch &&
    benchEndpointName(point) === benchEndpointName(of) &&
    point.requestsPerSecond > 0
      ? [point.requestsPerSecond]
      : [],
  );
  return rates.length === 0 ? undefined : Math.max(...rates);
}
