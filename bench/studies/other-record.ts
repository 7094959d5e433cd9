import { UserError } from "../../contract/user-error.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";

/**
 * Load points of another record for the same study, with another number of GPUs or topology.
 *
 * @param displayPath - File name in messages and ids.
 * @throws {UserError} one line, if the record has none or measured another model.
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
      `--against ${displayPath}: must contain load points of the study '${study}' ('clipstack sweep ${study}'), got none`,
    );
  }
  return loadPoints.map((point) => ({ ...point, id: `${point.id} (${displayPath})` }));
}
