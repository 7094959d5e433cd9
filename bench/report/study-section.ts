import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import type { StudyId, StudyResult } from "../record/study-result.ts";
import { type DataTable, numberField, type Section, tableOf } from "./document.ts";
import {
  conditionsFields,
  latencyFields,
  loadField,
  loadPointRows,
  metricField,
  nameField,
  trustField,
} from "./load-point-table.ts";
import { clientsOf, seriesOf, trustOf } from "./load-points.ts";
import { formatCount } from "./number-format.ts";

/** A section for each study that a record has. Pure. */

type Found<Id extends StudyId> = Extract<StudyResult, { readonly study: Id }>;

/** Contents of a study's section; its title, question and notes come from the record. */
export type StudyBody = Pick<Section, "answer" | "tables"> &
  Partial<Pick<Section, "figures" | "notes">>;

/** Text of a study besides its figures. */
export function studyNotes(record: BenchRecord, study: StudyId): readonly string[] {
  return [...new Set(record.studies.flatMap((it) => (it.study === study ? it.notes : [])))];
}

export function studyResults<Id extends StudyId>(
  record: BenchRecord,
  study: Id,
): readonly Found<Id>[] {
  return record.studies.filter((it): it is Found<Id> => it.study === study);
}

/** A table of a study's loads: what it changed, then the figures. */
export function loadTable(caption: string, loadPoints: readonly LoadPoint[]): DataTable {
  return tableOf(caption, loadPointRows(seriesOf(loadPoints)), [
    nameField,
    ...conditionsFields(loadPoints),
    numberField("batch", ({ point }) => point.imagesPerRequest, formatCount),
    loadField,
    metricField("throughput"),
    ...latencyFields,
    metricField("averageBatch"),
    trustField,
  ]);
}

export const usableLoadPoints = (loadPoints: readonly LoadPoint[]) =>
  loadPoints.filter((point) => trustOf(point) === "good" || trustOf(point) === "unstable");

/** Returns whether two cells send the same requests with as many clients. */
export const isSameLoad = (a: LoadPoint, b: LoadPoint) =>
  a.environment === b.environment &&
  a.payload === b.payload &&
  a.imagesPerRequest === b.imagesPerRequest &&
  clientsOf(a) === clientsOf(b);
