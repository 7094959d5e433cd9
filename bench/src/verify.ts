import { existsSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { type Artefact, readArtefact } from "./artefact.ts";
import { checkBatches } from "./check-batches.ts";
import { checkBatching } from "./check-batching.ts";
import { checkEmbedding } from "./check-embedding.ts";
import { checkEndpoints } from "./check-endpoints.ts";
import { checkErrors } from "./check-errors.ts";
import { checkParity, parityLimits } from "./check-parity.ts";
import { checkStop } from "./check-stop.ts";
import { checkStart, checkWiring } from "./check-wiring.ts";
import { type RunningInstance, requirePorts, startEmbedded } from "./embedded.ts";
import { describe, type EmbeddedPlan, loopback, planEmbedded } from "./embedded-plan.ts";
import { freePorts } from "./free-ports.ts";
import { reason } from "./http-client.ts";
import { runLoad } from "./load.ts";
import { describeCommit, describeMachine } from "./machine.ts";
import {
  type CheckId,
  type CheckResult,
  type EnvironmentSubject,
  type Measurement,
  type ModelSubject,
  recordSchemaVersion,
  type VerifyRecord,
} from "./record.ts";
import { makeReference, type Preprocess, type Reference, readSamples } from "./reference.ts";
import { makeScratchFolder } from "./scratch-folder.ts";
import { serverVersion } from "./server-version.ts";
import { openService, pathsOf, resultOf, type ServiceUnderTest } from "./service-under-test.ts";
import { errorsByCode, p99MinimumSamples, summarizeLatency } from "./statistics.ts";

export interface VerifyOptions {
  readonly environments: readonly EnvironmentFile[];
  /** Folder of the project: for the commit, and how paths are shown. */
  readonly project: string;
  /** Starts the bundled server: program, arguments, and the server's file last. */
  readonly serverCommand: readonly string[];
  /** The project's model repository, for volumes of other hosts. */
  readonly modelRepository: string;
  /** ONNX file in place of every model; absent: what the artefacts mount. */
  readonly modelFile?: string;
  readonly model: ModelSubject;
  /** Folder of sample images. */
  readonly samples: string;
  /** ONNX file of the local reference, that every path is compared with. */
  readonly referenceModel: string;
  readonly preprocess: Preprocess;
  readonly portOffset: number;
  /** Length of the load on each protocol path. */
  readonly secondsPerPath: number;
  /**
   * No start takes longer, whatever budget was synthesized, in seconds.
   *
   * @default 120
   */
  readonly startLimitSeconds?: number;
  readonly signal: AbortSignal;
  readonly onEvent: (event: VerifyEvent) => void;
}

export interface EnvironmentFile {
  /** Path of `cdk.tf.json`. */
  readonly file: string;
  /** How it is shown. */
  readonly shown: string;
  readonly editedByHand: boolean;
}

/** What happens, as it happens. */
export type VerifyEvent =
  | { readonly kind: "phase"; readonly environment?: string; readonly text: string }
  | { readonly kind: "check"; readonly result: CheckResult }
  | { readonly kind: "measurement"; readonly measurement: Measurement };

const sampleLimit = 8;
const concurrency = 4;
/** In the record where nothing started that could say what it is. */
const unknownServer = "clipstack";
const defaultStartLimitSeconds = 120;
/** Listeners that need a free port are at most these for one replica. */
const portsPerReplica = 3;

/**
 * Run each environment on this machine and check it; one after the other, because they may use the same ports.
 *
 * @throws {BenchError} what is wrong before anything has started: a file, an option, a port that is taken.
 */
export async function verify(options: VerifyOptions): Promise<VerifyRecord> {
  const startedAt = new Date();
  const scratch = makeScratchFolder();
  try {
    const prepared: Prepared[] = [];
    for (const [index, environment] of options.environments.entries()) {
      const artefact = readArtefact(environment.file, environment.shown);
      const plan = await planFor(artefact, environment, options, join(scratch, String(index)));
      prepared.push({ ...environment, artefact, plan });
    }
    await requirePorts(
      prepared.map(({ artefact, plan }) => ({ environment: artefact.environment.name, plan })),
    );

    const samples = readSamples(options.samples, sampleLimit);
    options.onEvent({
      kind: "phase",
      text: `reference embeddings of ${samples.length} sample images`,
    });
    const reference = await makeReference(samples, options.referenceModel, options.preprocess);

    const checks: CheckResult[] = [];
    const measurements: Measurement[] = [];
    const environments: EnvironmentSubject[] = [];
    const servers = new Set<string>();
    for (const one of prepared) {
      options.signal.throwIfAborted();
      const run = new EnvironmentRun(one, reference, options);
      environments.push(await run.execute());
      checks.push(...run.checks);
      measurements.push(...run.measurements);
      for (const server of run.servers) servers.add(server);
    }
    return {
      schema: recordSchemaVersion,
      kind: "verify",
      startedAt: startedAt.toISOString(),
      finishedAt: new Date().toISOString(),
      subject: {
        ...(await describeCommit(options.project)),
        runtime: "embedded",
        server: [...servers].sort().join(", ") || unknownServer,
        model: options.model,
        machine: describeMachine(),
        settings: {
          portOffset: options.portOffset,
          secondsPerPath: options.secondsPerPath,
          concurrency,
          sampleImages: samples.map(({ name }) => name),
          ...parityLimits,
          p99MinimumSamples,
        },
      },
      environments,
      checks,
      measurements,
      passed: checks.every(({ outcome }) => outcome !== "fail"),
    };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

interface Prepared extends EnvironmentFile {
  readonly artefact: Artefact;
  readonly plan: EmbeddedPlan;
}

async function planFor(
  artefact: Artefact,
  { file }: EnvironmentFile,
  options: VerifyOptions,
  temporaryFolder: string,
): Promise<EmbeddedPlan> {
  const replicas = artefact.workloads.reduce((sum, workload) => sum + workload.replicas, 0);
  const published = artefact.workloads.flatMap((workload) => workload.published);
  const needed = new Set(published.map(({ external }) => external + options.portOffset));
  const free = [...(await freePorts(replicas * portsPerReplica, needed))];
  return planEmbedded(artefact, {
    moduleFolder: dirname(resolve(file)),
    modelRepository: options.modelRepository,
    modelFile: options.modelFile,
    exists: existsSync,
    temporaryFolder,
    portOffset: options.portOffset,
    freePort: () => free.pop() ?? 0,
  });
}

/** One environment, from the start of its processes to their end. */
class EnvironmentRun {
  readonly checks: CheckResult[] = [];
  readonly measurements: Measurement[] = [];
  /** Names and versions that the servers gave. */
  readonly servers = new Set<string>();
  readonly #name: string;

  constructor(
    private readonly prepared: Prepared,
    private readonly reference: Reference,
    private readonly options: VerifyOptions,
  ) {
    this.#name = prepared.artefact.environment.name;
  }

  async execute(): Promise<EnvironmentSubject> {
    const { artefact, plan, shown, editedByHand } = this.prepared;
    const { serverCommand, signal, startLimitSeconds = defaultStartLimitSeconds } = this.options;
    const began = performance.now();
    this.#phase(`start ${plan.instances.map(({ name }) => name).join(", ")}`);
    const running = await startEmbedded(plan, { serverCommand, signal, startLimitSeconds });
    const services = artefact.workloads.map((workload) =>
      openService(
        this.#name,
        workload,
        running.instances.filter(({ instance }) => instance.workload === workload),
        plan.targets.filter((target) => target.workload === workload),
      ),
    );
    const stopNow = () => void running.stop();
    signal.addEventListener("abort", stopNow, { once: true });
    try {
      await this.#checkAll(services, plan, running.instances);
    } finally {
      signal.removeEventListener("abort", stopNow);
      await Promise.all(services.flatMap((s) => [s.closeTransports(), s.http.close()]));
      await running.stop();
    }
    const { environment } = artefact;
    return {
      name: environment.name,
      where: environment.where,
      accelerator: environment.accelerator,
      gpu:
        environment.gpu === undefined
          ? undefined
          : `${environment.gpu.count} × ${environment.gpu.name}`,
      artefact: { file: shown, sha256: artefact.sha256, editedByHand },
      services: artefact.workloads.map((workload) => ({
        name: workload.service.name,
        kind: workload.service.kind,
        backend: workload.service.backend,
        resource: describe(workload),
        processes: workload.replicas,
      })),
      notes: [...plan.notes],
      seconds: Math.round((performance.now() - began) / 100) / 10,
    };
  }

  async #checkAll(
    services: readonly ServiceUnderTest[],
    plan: EmbeddedPlan,
    all: readonly RunningInstance[],
  ): Promise<void> {
    const { reference } = this;
    for (const service of services) this.#report(checkWiring(service, plan));
    for (const service of services) this.#report(await checkStart(service));

    const ready = services.filter((service) => service.instances.every(({ start }) => start.ok));
    for (const service of ready) {
      const server = await serverVersion(service);
      if (server !== undefined) this.servers.add(server);
    }
    const families: readonly [
      CheckId,
      (service: ServiceUnderTest) => Promise<readonly CheckResult[]>,
    ][] = [
      ["endpoints", checkEndpoints],
      ["embedding", (service) => checkEmbedding(service, reference)],
      ["parity", (service) => checkParity(service, reference)],
      ["batches", (service) => checkBatches(service, reference)],
      ["batching", (service) => checkBatching(service, batchedAt(service, all), reference)],
      ["errors", (service) => checkErrors(service, reference)],
      ["load", (service) => this.#load(service)],
    ];
    for (const [id, check] of families) {
      await this.#family(id, services, ready, check);
    }
    // a gateway before the Tritons that it needs
    const order = [...services].sort((a, b) => kindOrder(a) - kindOrder(b));
    await this.#family("stop", order, ready, (service) => checkStop(service, reference));
  }

  async #family(
    id: CheckId,
    services: readonly ServiceUnderTest[],
    ready: readonly ServiceUnderTest[],
    check: (service: ServiceUnderTest) => Promise<readonly CheckResult[]>,
  ): Promise<void> {
    for (const service of services) {
      this.options.signal.throwIfAborted();
      if (!ready.includes(service)) {
        this.#report([resultOf(service, id, "skip", "it did not start")]);
        continue;
      }
      // a load says which path it is on
      if (id !== "load") this.#phase(`${id}: ${service.workload.service.name}`);
      try {
        const results = await check(service);
        // what was stopped from outside fails for that reason alone
        this.options.signal.throwIfAborted();
        this.#report(results);
      } catch (error) {
        this.options.signal.throwIfAborted();
        this.#report([resultOf(service, id, "fail", reason(error))]);
      }
    }
  }

  async #load(service: ServiceUnderTest): Promise<readonly CheckResult[]> {
    const results: CheckResult[] = [];
    const { secondsPerPath, signal } = this.options;
    for (const target of pathsOf(service)) {
      const { path } = target;
      this.#phase(`load: ${path}`);
      const { samples, seconds } = await runLoad(service, target, this.reference, {
        concurrency,
        seconds: secondsPerPath,
        signal,
      });
      const latency = summarizeLatency(samples);
      const errors = errorsByCode(samples);
      const good = latency?.count ?? 0;
      const measurement: Measurement = {
        environment: this.#name,
        service: service.workload.service.name,
        path,
        load: { kind: "closed loop", concurrency, imagesPerRequest: 1, seconds },
        samples: good,
        imagesPerSecond: good / seconds,
        latencyMs:
          latency === undefined
            ? undefined
            : {
                p50: latency.p50Ms,
                p95: latency.p95Ms,
                p99: latency.p99Ms,
                max: latency.maxMs,
                p99Reliable: latency.p99Reliable,
              },
        histogram: (latency?.histogram ?? []).map(([us, count]) => [us, count]),
        errors,
      };
      this.measurements.push(measurement);
      this.options.onEvent({ kind: "measurement", measurement });
      const failed = samples.length - good;
      const measured = {
        requests: samples.length,
        failed,
        imagesPerSecond: measurement.imagesPerSecond,
      };
      if (failed === 0 && good > 0) {
        results.push(
          resultOf(service, "load", "pass", `${good} requests answered`, { path, measured }),
        );
      } else {
        const codes = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
        const message = `${failed} of ${samples.length} requests failed: ${codes.join(", ")}`;
        results.push(resultOf(service, "load", "fail", message, { path, measured }));
      }
    }
    return results;
  }

  #phase(text: string): void {
    this.options.onEvent({ kind: "phase", environment: this.#name, text });
  }

  #report(results: readonly CheckResult[]): void {
    for (const result of results) {
      this.checks.push(result);
      this.options.onEvent({ kind: "check", result });
    }
  }
}

function kindOrder(service: ServiceUnderTest): number {
  return service.workload.service.kind === "embed" ? 0 : 1;
}

/** Where the batches of a service are made: in its own processes, or in the Tritons behind a gateway. */
function batchedAt(
  service: ServiceUnderTest,
  all: readonly RunningInstance[],
): readonly RunningInstance[] {
  const behind = new Set(
    service.instances.flatMap(({ instance }) => (instance.env.TRITON_GRPC_URLS ?? "").split(",")),
  );
  const tritons = all.filter(({ instance }) =>
    instance.listeners.some(
      ({ protocol, local }) => protocol === "oip-grpc" && behind.has(`${loopback}:${local}`),
    ),
  );
  return tritons.length > 0 ? tritons : service.instances;
}
