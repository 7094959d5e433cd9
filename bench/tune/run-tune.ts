import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import { UserError } from "../../contract/user-error.ts";
import { formatRate } from "../../report/document/number-format.ts";
import type { TargetSource } from "../../target/target.ts";
import { stationNames } from "../capacity/model.ts";
import { confirmedTrial, type SloSearch } from "../record/slo-search.ts";
import type { TuneCandidate, TuneResult } from "../record/tune-result.ts";
import { sloText } from "../report/slo-section.ts";
import { endedText, notMeasured, settingsText } from "../report/tune-section.ts";
import { type BenchOptions, measureRound, type TargetState } from "../run/bench-run.ts";
import type { SloGoal } from "../slo/search-slo.ts";
import { bottleneckOf, type MeasuredHost, orderFor } from "./bottleneck.ts";
import { type Settings, searchSettings, type Variable } from "./coordinate-search.ts";

export interface TuneOptions extends Pick<BenchOptions, "context" | "record" | "reference"> {
  readonly environment: string;
  readonly endpoint: BenchEndpoint;
  readonly variables: readonly Variable[];
  /** Maximum rounds of each comparison. */
  readonly rounds: number;
  /** Clients of the closed loop that bounds the search for the rate. */
  readonly concurrency: number;
  readonly slo: SloGoal;
  readonly host: MeasuredHost;
  /** Makes the settings of a candidate effective, and returns where its requests go; the source names its environment `name`. */
  readonly sourceOf: (name: string, settings: Settings) => Promise<TargetSource>;
}

/**
 * Searches the settings with the highest rate within an SLO. In each round, a candidate is opened, its closed loop is measured and its
 * rate searched, as by `clipstack bench --slo`.
 *
 * @throws the signal's reason after an interrupt.
 */
export async function runTune(options: TuneOptions): Promise<void> {
  const { context, record, environment, slo, variables } = options;
  const { signal, settings } = context;
  const result: TuneResult = { environment, varied: [], candidates: [] };
  record.tune = result;
  const states = new Map<TuneCandidate, TargetState>();
  const notice = (text: string) => context.onEvent({ kind: "notice", text });

  const measure = async (candidate: TuneCandidate, round: number) => {
    signal.throwIfAborted();
    const { name } = candidate;
    const source = await options.sourceOf(name, candidate.settings);
    const state = states.get(candidate) ?? { failedLoadPoints: new Set(), isDone: false };
    states.set(candidate, state);
    const bench: BenchOptions = {
      // each round searches the rate, in trials of its own length
      context: { ...context, settings: { ...settings, rounds: 1 } },
      ...{ record, reference: options.reference, sources: [source] },
      endpoints: [{ ...options.endpoint, byName: true }],
      batchSizes: [1],
      loads: [{ kind: "closed loop", concurrency: options.concurrency }],
      // other arrival times in each round, the same for its candidates
      slo: { ...slo, seed: slo.seed + 100 * round },
    };
    const searchCount = record.slo?.length ?? 0;
    await measureRound(bench, source, round, state);
    if (state.isDone && round === 1) {
      throw new UserError(`${environment}: ${record.parity.at(-1)?.message ?? "nothing measured"}`);
    }
    const measured = rateOf(record.slo?.[searchCount]);
    const rate = measured && `${formatRate(measured.imagesPerSecond)} images/s`;
    notice(
      `round ${round}, ${name} (${settingsText(candidate, result)}): ${rate ?? "no valid measurement"} with ${sloText(slo.slo)}`,
    );
    return measured;
  };

  await searchSettings(
    {
      ...{ variables, rounds: options.rounds, seed: settings.seed, measure },
      ordered(all) {
        const [closedLoop] = record.loadPoints.filter(({ load }) => load.kind === "closed loop");
        const bottleneck = closedLoop && bottleneckOf(closedLoop, options.host);
        result.bottleneck = bottleneck && stationNames[bottleneck];
        return orderFor(bottleneck, all);
      },
      onEnd: (candidate) => notice(`${candidate.name}: ${endedText(candidate, slo.slo)}`),
    },
    result,
  );
  const name = benchEndpointName(options.endpoint);
  if (result.verdict === "slo missed") {
    record.failures.push(`${name}: no candidate meets ${sloText(slo.slo)}`);
  } else if (result.verdict === "not measured") {
    record.failures.push(
      `${name}: ${notMeasured}: give this process more of the machine, or lower --concurrency, got ${options.concurrency}`,
    );
  }
}

/** Images per second that a search confirmed, and the latency there: 0 if no rate met the SLO, undefined if the client was too slow to tell. */
function rateOf(search: SloSearch | undefined) {
  if (search === undefined) return { imagesPerSecond: 0 };
  const confirmed = confirmedTrial(search);
  if (confirmed !== undefined) {
    return {
      imagesPerSecond: confirmed.ratePerSecond * search.imagesPerRequest,
      percentileMs: confirmed.percentileMs,
    };
  }
  return search.trials.at(-1)?.verdict === "client" ? undefined : { imagesPerSecond: 0 };
}
