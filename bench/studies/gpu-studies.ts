import { UserError } from "../../contract/user-error.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import {
  clients,
  type LoadStudy,
  optionalEndpoint,
  requestedOr,
  type StudyRun,
  StudyUnavailable,
} from "./study.ts";

const endpointsOf = requestedOr(optionalEndpoint("embed-http", "jpeg"));

/** The same load per GPU on different numbers of GPUs. Efficiency is the throughput of N GPUs divided by N times that of one. */
export const scalingStudy: LoadStudy = {
  kind: "load",
  id: "scaling",
  requiresDeployment: true,
  endpointsOf,
  async run(run) {
    const conditions = openComparison("scaling", run);
    for (const measured of run.endpoints) {
      if (measured.endpoint.serialization !== "binary") continue;
      for (const perGpu of run.grid.concurrency.scaling) {
        const load = clients(perGpu * conditions.gpus);
        await run.measure("scaling", measured, { batch: 1, load, conditions });
      }
    }
  },
};

/** One Triton server across all GPUs against one for each GPU, through the gateway, which alone reaches all GPUs in both. */
export const topologyStudy: LoadStudy = {
  kind: "load",
  id: "topology",
  requiresDeployment: true,
  endpointsOf,
  async run(run) {
    const conditions = openComparison("topology", run);
    for (const measured of run.endpoints) {
      if (measured.endpoint.endpoint !== "embed-http") continue;
      for (const concurrency of run.grid.concurrency.topology) {
        const load = clients(concurrency);
        await run.measure("topology", measured, { batch: 1, load, conditions });
      }
    }
  },
};

/** Records the study with the load points of the other deployment, and returns the GPUs of this one. */
function openComparison(study: "scaling" | "topology", run: StudyRun) {
  const { deployment, environment } = run;
  if (deployment === undefined) throw new StudyUnavailable("requires a deployed environment");
  const { gpus, topology, against } = deployment;
  const notes: string[] = [];
  if (against !== undefined && run.round === 1) {
    const others = loadPointsOf(study, against.record, against.path, run.model);
    run.addLoadPoints(others);
    notes.push(
      `Load points labelled (${against.path}) are from that record, measured ${against.record.startedAt}.`,
    );
  }
  run.addResult({ study, environment, notes });
  return { gpus, topology };
}

/** Load points of another record for the same study, with another number of GPUs or topology. */
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
