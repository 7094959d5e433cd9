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
import { bytesPerImage, predictScenario, type Scenario, type ServiceTimes } from "./scenario.ts";

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

/** Interval of a throughput, which cannot exceed what the link carries. */
export function throughputBand(
  rates: readonly number[],
  scenario: Pick<Scenario, "payload" | "jpegBytes" | "bandwidthMbps">,
  { times, factors }: Uncertainty,
): Band {
  const [first] = times;
  const carried =
    first === undefined
      ? Number.POSITIVE_INFINITY
      : (scenario.bandwidthMbps * 1e6) / 8 / bytesPerImage(scenario, first);
  const { p10, p90 } = bandOf(rates, factors.throughput);
  return { p10: Math.min(p10, carried), p90: Math.min(p90, carried) };
}

export function predictionInterval(
  scenario: Scenario,
  uncertainty: Uncertainty,
): PredictionInterval {
  const { times, factors } = uncertainty;
  const predictions = times.map((some) => predictScenario(scenario, some));
  const imagesPerSecond = throughputBand(
    predictions.map((prediction) => prediction.imagesPerSecond),
    scenario,
    uncertainty,
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
