import { UserError } from "../../contract/user-error.ts";
import type { BenchRecord, Cell } from "../record/bench-record.ts";

/**
 * Load points of another record for the same study: with other GPUs, or in the other topology.
 *
 * @param displayPath - Name of that record in messages and ids.
 * @throws {UserError} one line, if it has none or measured another model
 */
export function cellsAgainst(
  study: "scaling" | "topology",
  other: BenchRecord,
  displayPath: string,
  model: BenchRecord["subject"]["model"],
): readonly Cell[] {
  if (other.subject.model.sha256 !== model.sha256) {
    throw new UserError(`--against ${displayPath}: must be of the same model file`);
  }
  const cells = other.cells.filter((cell) => cell.study === study);
  if (cells.length === 0) {
    throw new UserError(
      `--against ${displayPath}: has no load points of the study '${study}': measure it there with 'clipstack sweep ${study}'`,
    );
  }
  return cells.map((cell) => ({ ...cell, id: `${cell.id} (${displayPath})` }));
}
