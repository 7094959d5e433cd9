import { benchEndpointName } from "../record/bench-endpoint.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { environmentNames, seriesOf } from "./load-points.ts";
import { counted, listed } from "./number-format.ts";

/** Result of a local simulation, which shows whether the endpoints work and not how fast the deployment is. */
export function simulationHeadline(record: BenchRecord): string {
  const results = endpointResults(record);
  const broken = [...results].flatMap(([name, works]) => (works ? [] : [`\`${name}\``]));
  const all = results.size;
  const works =
    all === 0
      ? "No endpoint was measured"
      : broken.length > 0
        ? `Works on ${all - broken.length} of ${counted(all, "endpoint")}, not on ${listed(broken)}`
        : all === 1
          ? `Works on \`${[...results.keys()].join("")}\``
          : `Works on all ${all} endpoints`;
  const failures =
    broken.length === 0 && record.failures.length > 0
      ? `; ${counted(record.failures.length, "failure")}`
      : "";
  return `${works}${failures}; no performance conclusion`;
}

/** Returns by name whether each endpoint passed the parity check and answered every request. */
function endpointResults({
  parity,
  loadPoints,
  interrupted,
}: BenchRecord): ReadonlyMap<string, boolean> {
  const results = new Map<string, boolean>();
  const many = environmentNames(loadPoints).length > 1;
  for (const { name, loadPoints: own } of seriesOf(loadPoints)) {
    results.set(
      name,
      own.every(
        ({ samples, errorsWithWarmup }) =>
          samples > 0 && Object.keys(errorsWithWarmup).length === 0,
      ),
    );
  }
  for (const result of parity) {
    const name = `${many ? `${result.environment} ` : ""}${benchEndpointName(result)}`;
    results.set(name, result.passed && (results.get(name) ?? interrupted));
  }
  return results;
}
