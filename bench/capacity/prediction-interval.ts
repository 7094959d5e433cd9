import { directParameters } from "./calibrate-published.ts";
import type { RecordCalibration } from "./calibrate-record.ts";
import {
  type Band,
  bandOf,
  type ErrorFactors,
  errorFactors,
  leaveOneOut,
} from "./cross-validation.ts";
import type { PublishedFacts } from "./published-parameters.ts";
import { roundedSources } from "./rounded-sources.ts";
import { predictScenario, type Scenario, type ServiceTimes } from "./scenario.ts";

/** Sources of the uncertainty of predictions. */
export interface Uncertainty {
  /** Service times for sources that round to the published figures. */
  readonly times: readonly ServiceTimes[];
  /** Ratios of measured to predicted figures that did not calibrate the model. */
  readonly factors: ErrorFactors;
}

/** Intervals of a prediction. */
export interface PredictionInterval {
  readonly imagesPerSecond: Band;
  readonly latencyMs: Band;
  /** Absent without a price. */
  readonly usdPerThousand?: Band;
}

const roundingDraws = 20;

/**
 * Uncertainty of predictions from published figures: the rounding of the sources, and the errors in settings that were left out of the
 * calibration.
 *
 * @param timesOf - Service times that follow from the facts.
 */
export function publishedUncertainty(
  facts: PublishedFacts,
  timesOf: (facts: PublishedFacts) => ServiceTimes,
): Uncertainty {
  const { published, peaks, parameters } = facts;
  return {
    times: roundedSources(published, roundingDraws).map((rounded) =>
      timesOf({
        published: rounded,
        peaks,
        parameters: { ...parameters, ...directParameters(rounded, peaks) },
      }),
    ),
    factors: errorFactors(leaveOneOut(facts)),
  };
}

/** Uncertainty of predictions from a record: the errors at its predicted load points; `undefined` without any. */
export function recordUncertainty(
  { rows }: Pick<RecordCalibration, "rows">,
  times: ServiceTimes,
): Uncertainty | undefined {
  const predicted = rows.filter(({ role }) => role === "predicted");
  if (predicted.length === 0) return undefined;
  return {
    times: [times],
    factors: {
      throughput: [predicted.map(({ throughputError }) => 1 / (1 + throughputError))],
      latency: [predicted.map(({ latencyError }) => 1 / (1 + latencyError))],
    },
  };
}

export function predictionInterval(
  scenario: Scenario,
  { times, factors }: Uncertainty,
): PredictionInterval {
  const predictions = times.map((some) => predictScenario(scenario, some));
  const imagesPerSecond = bandOf(
    predictions.map((prediction) => prediction.imagesPerSecond),
    factors.throughput,
  );
  const [{ usdPerThousand, imagesPerSecond: rate } = { imagesPerSecond: Number.NaN }] = predictions;
  const perRate = (usdPerThousand ?? Number.NaN) * rate;
  return {
    imagesPerSecond,
    latencyMs: bandOf(
      predictions.map(({ latencyMs }) => latencyMs),
      factors.latency,
    ),
    ...(usdPerThousand === undefined
      ? {}
      : {
          usdPerThousand: {
            p10: perRate / imagesPerSecond.p90,
            p90: perRate / imagesPerSecond.p10,
          },
        }),
  };
}
