import { UserError } from "../../contract/user-error.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";

/**
 * Load points of another record for the same study: with other GPUs, or in the other topology.
 *
 * @param displayPath - Name of that record in messages and ids.
 * @throws {UserError} one line, if it has none or measured another model
 */
export function loadPointsOf(
  study: "scaling" | "topology",
  other: BenchRecord,
  displayPath: string,
  model: BenchRecord["subject"]["model"],
): readonly LoadPoint[] {
  if (other.subject.model.sha256 !== model.sha256) {
    throw new UserError(`--against ${displayPath}: must be of the same model file`);
  }
  const loadPoints = other.loadPoints.filter((point) => point.study === study);
  if (loadPoints.length === 0) {
    throw new UserError(
      `--against ${displayPath}: has no load points of the study '${study}': measure it there with 'clipstack sweep ${study}'`,
    );
  }
  return loadPoints.map((point) => ({ ...point, id: `${point.id} (${displayPath})` }));
}
