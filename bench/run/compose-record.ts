import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import type { ImageTower, TextTower } from "../../contract/model-spec.ts";
import type { OpenTarget } from "../../target/open/open-target.ts";
import { describeCommit, describeMachine } from "../../target/readings/machine.ts";
import { parityFailure } from "../measure/bench-parity.ts";
import {
  type BenchRecord,
  benchRecord,
  benchRecordVersion,
  type LoadPoint,
} from "../record/bench-record.ts";
import { aboveCeiling, type Device } from "../stats/roofline.ts";
import { commandLine } from "./command-line.ts";

/** Creates the record of a run, to which results are added. */
export async function newBenchRecord(options: {
  /** Folder of the git repository, for the commit. */
  readonly project: string;
  readonly startedAt: Date;
  readonly target: OpenTarget["target"];
  readonly model: BenchRecord["subject"]["model"];
  readonly settings: BenchRecord["settings"];
  /** Arguments of the command. */
  readonly args?: readonly string[];
}): Promise<BenchRecord> {
  const { project, startedAt, target, model, settings, args } = options;
  return {
    schema: benchRecordVersion,
    kind: "bench",
    startedAt: startedAt.toISOString(),
    finishedAt: startedAt.toISOString(),
    interrupted: false,
    subject: {
      ...(await describeCommit(project)),
      target,
      commandLine: args && commandLine(args),
      servers: [],
      model,
      machine: describeMachine(),
      environments: [],
    },
    settings,
    parity: [],
    loadPoints: [],
    studies: [],
    imported: [],
    notes: [],
    passed: true,
    failures: [],
  };
}

/**
 * Adds the description of open targets to a record. If environments differ in GPUs or price, the record has neither, because
 * figures of one would be attributed to the other.
 */
export function addSubject(record: BenchRecord, open: OpenTarget): void {
  const { subject } = record;
  const { environments, servers, driver, gpu, price } = open.subject;
  const isFirst = subject.servers.length === 0;
  subject.environments.push(...environments);
  for (const server of servers) {
    if (!subject.servers.some((known) => sameJson(known, server))) subject.servers.push(server);
  }
  record.notes.push(...open.notes);
  if (isFirst) {
    subject.driver = driver;
    subject.gpu = gpu;
    subject.price = price;
  } else if (!sameJson([subject.gpu, subject.price], [gpu, price])) {
    subject.gpu = undefined;
    subject.price = undefined;
    const note =
      "The environments differ in GPUs or price, so the record contains neither; measure them separately for costs.";
    if (!record.notes.includes(note)) record.notes.push(note);
  }
}

/** Adds the time of another round to the environments of a record. */
export function addSeconds({ subject }: BenchRecord, open: OpenTarget): void {
  for (const { name, seconds } of open.subject.environments) {
    const known = subject.environments.find((environment) => environment.name === name);
    if (known !== undefined) known.seconds += seconds;
  }
}

function sameJson(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/**
 * Completes a record: collects failures, and makes ids unique.
 *
 * @param tower - Measured tower.
 * @param devices - Devices with a known peak, by environment.
 */
export function finishBenchRecord(
  record: BenchRecord,
  tower: ImageTower | TextTower,
  devices: ReadonlyMap<string, Device> = new Map(),
): BenchRecord {
  record.loadPoints = withUniqueIds(record.loadPoints);
  record.settings.endpoints = [
    ...new Set(
      [...record.parity, ...record.loadPoints].map((endpoint) => benchEndpointName(endpoint)),
    ),
  ];
  record.finishedAt = new Date().toISOString();
  record.failures.push(
    ...record.parity.filter(({ passed }) => !passed).map(parityFailure),
    ...record.loadPoints.flatMap(({ id, errorsWithWarmup }) => {
      const codes = Object.entries(errorsWithWarmup).map(([code, count]) => `${count} × ${code}`);
      return codes.length === 0 ? [] : [`${id}: requests failed: ${codes.join(", ")}`];
    }),
    ...aboveCeiling(record.loadPoints, devices, tower),
  );
  const checked = benchRecord.safeParse(record);
  for (const { path, message } of checked.error?.issues ?? []) {
    record.failures.push(`the record is invalid: ${path.join(".")}: ${message}`);
  }
  record.passed = record.failures.length === 0;
  return record;
}

/** Appends the environment, service, study or number to ids that are not unique. */
function withUniqueIds(loadPoints: readonly LoadPoint[]): LoadPoint[] {
  const parts: readonly ((point: LoadPoint, index: number) => string | undefined)[] = [
    ({ environment }) => environment,
    ({ service }) => service,
    ({ study }) => study,
    (_point, index) => `#${index + 1}`,
  ];
  let named = loadPoints.map((point) => ({ ...point }));
  for (const part of parts) {
    const seen = new Map<string, Set<string | undefined>>();
    named.forEach((point, index) => {
      const values = seen.get(point.id) ?? new Set();
      seen.set(point.id, values.add(part(point, index)));
    });
    named = named.map((point, index) => {
      const own = part(point, index);
      const differs = (seen.get(point.id)?.size ?? 0) > 1;
      return differs && own !== undefined ? { ...point, id: `${point.id}, ${own}` } : point;
    });
  }
  return named;
}
