import {
  type DataTable,
  numberField,
  type Section,
  tableOf,
} from "../../report/document/document.ts";
import { formatCount } from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import type { StudyId, StudyResult } from "../record/study-result.ts";
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

type ResultOf<Id extends StudyId> = Extract<StudyResult, { readonly study: Id }>;

/** Contents of a study's section besides its title and question. */
export type StudyBody = Pick<Section, "answer" | "tables"> & Partial<Pick<Section, "figures">>;

/** Distinct notes of a study, as sentences. */
export function studyNotes(record: BenchRecord, study: StudyId): readonly string[] {
  return [
    ...new Set(record.studies.flatMap((result) => (result.study === study ? result.notes : []))),
  ];
}

export function studyResults<Id extends StudyId>(
  record: BenchRecord,
  study: Id,
): readonly ResultOf<Id>[] {
  return record.studies.filter((result): result is ResultOf<Id> => result.study === study);
}

/** Table of the load points of a study, with the changed conditions. */
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

/** Returns whether two load points have the same environment, payload format, batch size and clients. */
export const isSameLoad = (a: LoadPoint, b: LoadPoint) =>
  a.environment === b.environment &&
  a.payload === b.payload &&
  a.imagesPerRequest === b.imagesPerRequest &&
  clientsOf(a) === clientsOf(b);
