import { median } from "../../target/stats/statistics.ts";
import { calibratePublished } from "./calibrate.ts";
import { checkPublished, explainedError } from "./check.ts";
import type { PublishedFacts } from "./published-facts.ts";

/** Fit of the remote settings under an assumed ingest time of one Triton server. */
export interface ProfilePoint {
  /** Assumed ingest time of one Triton server per float32 image; `undefined`: as measured. */
  readonly ingestMs: number | undefined;
  /** Bandwidth that calibration then assigns to the client's link. */
  readonly bandwidthMbps: number;
  readonly medianError: number;
  readonly within25: number;
  readonly figures: number;
}

/** Ingest times of one Triton server per float32 image: from below the published input time to the limit of all remote runs. */
const assumedIngestMs = [undefined, 0.7, 3, 6, 12, 18, 22];

/**
 * Fit of the remote settings for different ingest times of one Triton server. Link and ingest are not identified if the errors do not
 * distinguish them.
 */
export function ingestProfile({
  published,
  peaks,
}: Pick<PublishedFacts, "published" | "peaks">): readonly ProfilePoint[] {
  return assumedIngestMs.map((ingestMs) => {
    const assumed = ingestMs === undefined ? {} : { assumedIngestMs: ingestMs };
    const parameters = calibratePublished(published, peaks, assumed);
    const errors = checkPublished({ published, peaks, parameters })
      .filter(({ role, place }) => role === "predicted" && place === "remote")
      .map(({ error = 0 }) => Math.abs(error));
    return {
      ingestMs,
      bandwidthMbps: parameters.bandwidthMbps,
      medianError: median(errors) ?? 0,
      within25: errors.filter((error) => error <= explainedError).length,
      figures: errors.length,
    };
  });
}
