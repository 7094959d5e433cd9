import type { CapacityParameters, CapacityTable } from "../../bench/capacity/capacity-table.ts";
import { cataloguePeaks } from "../../bench/capacity/service-times.ts";
import { calibratePublished, directParameters } from "./calibrate.ts";
import { summaryLine } from "./calibration-text.ts";
import { checkPublished, summarize } from "./check.ts";
import { errorFactors, leaveOneOut } from "./cross-validation.ts";
import { readPublished } from "./published.ts";
import type { PublishedFacts } from "./published-facts.ts";
import { roundedSources } from "./rounded-sources.ts";

/** Published figures, and the model calibrated with them. */
export function publishedFacts(): PublishedFacts {
  const published = readPublished();
  const sheets = published.get("gpu-peaks")?.figures ?? [];
  const peaks = {
    ...Object.fromEntries(sheets.map(({ gpu = "", value = Number.NaN }) => [gpu, value])),
    ...cataloguePeaks,
  };
  return { published, peaks, parameters: calibratePublished(published, peaks) };
}

const roundingDraws = 20;

/** Everything that `clipstack capacity` takes from the published figures. */
export function calibratedTable(facts: PublishedFacts): CapacityTable {
  const { published, peaks } = facts;
  return {
    summary: summaryLine(summarize(checkPublished(facts))),
    otherPeaks: Object.fromEntries(
      Object.entries(peaks).filter(([gpu]) => !(gpu in cataloguePeaks)),
    ),
    errorFactors: errorFactors(leaveOneOut(facts)),
    parameters: parametersOfServices(facts.parameters),
    roundedParameters: roundedSources(published, roundingDraws).map((rounded) =>
      parametersOfServices(directParameters(rounded, peaks)),
    ),
  };
}

/** The parameters without those of the published client and its settings. */
function parametersOfServices({
  jsonMsPerImage,
  jsonBytesPerImage,
  clipstackDecode,
  gateway,
  overheadMs,
  inputMs,
  ingestPerCore,
  sustainedShare,
  firstImageMs,
}: CapacityParameters): CapacityParameters {
  return {
    jsonMsPerImage,
    jsonBytesPerImage,
    clipstackDecode,
    gateway,
    overheadMs,
    inputMs,
    ingestPerCore,
    sustainedShare,
    firstImageMs,
  };
}
