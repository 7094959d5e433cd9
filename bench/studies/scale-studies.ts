import { UserError } from "../../contract/user-error.ts";
import type { BenchRecord, Cell, Conditions } from "../record/bench-record.ts";
import { clients, type StudyPath, type StudyRun } from "./study-run.ts";

/** One deployment of an environment with other GPUs or another topology than the next. */
export interface Variant {
  /** Number of GPUs and topology. */
  readonly conditions: Required<Pick<Conditions, "gpus" | "topology">>;
  readonly run: StudyRun;
}

/**
 * A number of GPUs, with the same load on each: as many clients for each GPU. Efficiency is the throughput of N against N times
 * that of one.
 */
export async function studyScaling({ run, conditions }: Variant): Promise<void> {
  for (const at of run.paths.filter(isUsual)) {
    for (const perGpu of run.grid.concurrency.scaling) {
      const load = clients(perGpu * conditions.gpus);
      await run.measure("scaling", at, { batch: 1, load, conditions });
    }
  }
}

/** One topology with each number of clients. */
export async function studyTopology({ run, conditions }: Variant): Promise<void> {
  for (const at of run.paths.filter(isGateway)) {
    for (const concurrency of run.grid.concurrency.topology) {
      await run.measure("topology", at, { batch: 1, load: clients(concurrency), conditions });
    }
  }
}

/** Of the paths of a topology those that lead to all its GPUs: one Triton for each GPU is behind the gateway only. */
function isGateway({ path }: StudyPath): boolean {
  return path.path === "embed-http";
}

function isUsual({ path }: StudyPath): boolean {
  return path.serialization === "binary";
}

/**
 * Cells of another record that stand beside those of a study: the same study with other GPUs, or the other topology.
 *
 * @throws {UserError} one line, where it has none, or measured another model
 */
export function cellsAgainst(
  study: "scaling" | "topology",
  other: BenchRecord,
  shown: string,
  model: BenchRecord["subject"]["model"],
): readonly Cell[] {
  if (other.subject.model.sha256 !== model.sha256) {
    throw new UserError(`--against ${shown}: must be of the same model file`);
  }
  const cells = other.cells.filter((cell) => cell.study === study);
  if (cells.length === 0) {
    throw new UserError(
      `--against ${shown}: has no cells of the study '${study}': measure it there with 'clipstack sweep ${study}'`,
    );
  }
  return cells.map((cell) => ({ ...cell, id: `${cell.id} (${shown})` }));
}
