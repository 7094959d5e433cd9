import { quantile } from "../../target/stats/statistics.ts";
import type { ErrorFactors } from "./capacity-table.ts";
import { bytesPerImage, costPerThousand, predictScenario, type Scenario } from "./scenario.ts";
import type { ServiceTimes } from "./service-times.ts";

/** 10th and 90th percentile of a prediction. */
export interface Band {
  readonly p10: number;
  readonly p90: number;
}

/** Sources of the uncertainty of predictions. */
export interface Uncertainty {
  /** Service times for sources that round to the published figures. */
  readonly times: readonly ServiceTimes[];
  /** Ratios of measured to predicted figures that did not calibrate the model. */
  readonly factors: ErrorFactors;
}

export interface PredictionInterval {
  readonly imagesPerSecond: Band;
  readonly latencyMs: Band;
  readonly usdPerThousand: Band;
}

/** Number of errors into which those of each published setting are resampled, so that settings with many figures count no more than others. */
const repetitions = 30;

/** Returns P10 and P90 of a prediction: every value (one per set of rounded sources) times every error factor, where each setting has equal weight. */
export function bandOf(values: readonly number[], factors: readonly (readonly number[])[]): Band {
  const equal = factors.flatMap((some) => {
    const sorted = some.toSorted((a, b) => a - b);
    return Array.from(
      { length: repetitions },
      (_, i) => sorted[Math.floor((i * sorted.length) / repetitions)] ?? 1,
    );
  });
  const all = values.flatMap((value) => equal.map((factor) => value * factor));
  return { p10: quantile(all, 0.1), p90: quantile(all, 0.9) };
}

/** Interval of a throughput, which cannot exceed what the link carries. */
export function throughputBand(
  rates: readonly number[],
  scenario: Pick<Scenario, "payload" | "jpegBytes" | "bandwidthMbps">,
  { times: [first], factors }: Uncertainty,
): Band {
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
  const predictions = uncertainty.times.map((times) => predictScenario(scenario, times));
  const imagesPerSecond = throughputBand(
    predictions.map((prediction) => prediction.imagesPerSecond),
    scenario,
    uncertainty,
  );
  const latencies = predictions.map(({ latencyMs }) => latencyMs);
  const latencyMs = bandOf(latencies, uncertainty.factors.latency);
  const usdPerHour = scenario.device.usdPerHour * scenario.gpus;
  return {
    imagesPerSecond,
    latencyMs,
    usdPerThousand: {
      p10: costPerThousand(usdPerHour, imagesPerSecond.p90),
      p90: costPerThousand(usdPerHour, imagesPerSecond.p10),
    },
  };
}
