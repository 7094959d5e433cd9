import { counted, listed } from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { endpointNamer, seriesOf, settingText } from "./load-points.ts";

/** Result of a local simulation, which shows whether the load points work and not how fast the deployment is. */
export function simulationHeadline(record: BenchRecord): string {
  const { loadPoints, parity, interrupted, failures } = record;
  const series = seriesOf(loadPoints);
  const failing = series.flatMap(({ name, loadPoints: own }) =>
    own.filter((point) => !works(point)).map((point) => `\`${name}\` (${settingText(point)})`),
  );
  const nameOf = endpointNamer([...parity, ...loadPoints]);
  const measured = new Set(series.map(({ name }) => name));
  const named = (results: BenchRecord["parity"]) =>
    listed([...new Set(results.map((result) => `\`${nameOf(result)}\``))]);
  const differing = parity.filter(({ passed }) => !passed);
  const unmeasured = parity.filter(
    (result) => result.passed && !interrupted && !measured.has(nameOf(result)),
  );
  const all = loadPoints.length;
  const faults = [
    ...(differing.length === 0 ? [] : [`the embeddings of ${named(differing)} differ`]),
    ...(unmeasured.length === 0 ? [] : [`${named(unmeasured)} was not measured`]),
  ];
  const hasCause = failing.length > 0 || faults.length > 0;
  return [
    all === 0
      ? "No load point was measured"
      : failing.length > 0
        ? `Works at ${all - failing.length} of ${counted(all, "load point")}, not at ${few(failing)}`
        : all === 1
          ? `Works at the one load point of \`${[...measured].join("")}\``
          : `Works at all ${all} load points of ${counted(measured.size, "endpoint")}`,
    ...faults,
    ...(!hasCause && failures.length > 0 ? [counted(failures.length, "failure")] : []),
    "no performance conclusion",
  ].join("; ");
}

/** Whether a load point answered every request. */
const works = ({ samples, errorsWithWarmup }: LoadPoint) =>
  samples > 0 && Object.keys(errorsWithWarmup).length === 0;

const shown = 3;

function few(names: readonly string[]): string {
  return names.length <= shown + 1
    ? listed(names)
    : listed([...names.slice(0, shown), `${names.length - shown} others`]);
}
