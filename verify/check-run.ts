import { setTimeout as sleep } from "node:timers/promises";
import { describeLatency, sortedLatencies } from "../bench/load/latency.ts";
import { prepareRequests } from "../bench/load/prepare.ts";
import { countCodes, isGood } from "../bench/load/samples.ts";
import { startLoad } from "../bench/load/start-load.ts";
import { clockMs } from "../bench/load/worker-messages.ts";
import {
  type CheckId,
  type CheckResult,
  type EnvironmentSubject,
  type Measurement,
  recordSchemaVersion,
  type VerifyRecord,
} from "../bench/record/record.ts";
import { reason } from "../bench/run/http-client.ts";
import { describeCommit, describeMachine } from "../bench/run/machine.ts";
import { parityLimits, type VerifyTarget } from "../bench/run/parity.ts";
import type {
  ChooseModel,
  Reference,
  ReferenceModel,
  SampleImage,
} from "../bench/run/reference.ts";
import { serverVersion } from "../bench/run/server-version.ts";
import {
  checkEachEndpoint,
  type EndpointTarget,
  resultOf,
  type ServiceUnderTest,
} from "../bench/run/service-under-test.ts";
import { p99MinimumSamples } from "../bench/stats/statistics.ts";
import { UserError } from "../contract/user-error.ts";
import { checkBatches } from "./checks/batches.ts";
import { checkEmbedding } from "./checks/embedding.ts";
import { checkEndpoints } from "./checks/endpoints.ts";
import { checkErrors } from "./checks/errors.ts";
import { checkParity } from "./checks/parity.ts";

/** What happens, as it happens. */
export type VerifyEvent =
  | { readonly kind: "phase"; readonly environment?: string; readonly text: string }
  | { readonly kind: "check"; readonly result: CheckResult }
  | { readonly kind: "measurement"; readonly measurement: Measurement };

/** How an environment is checked, wherever it runs. */
export interface CheckOptions {
  /** Folder of the project: for the commit, and how paths are shown. */
  readonly project: string;
  /** Model that every protocol path of an environment is compared with. */
  readonly chooseModel: ChooseModel;
  readonly portOffset: number;
  /** Length of the load on each protocol path. */
  readonly secondsPerPath: number;
  readonly signal: AbortSignal;
  readonly onEvent: (event: VerifyEvent) => void;
}

export const sampleLimit = 8;
const concurrency = 4;
/** In the record where nothing answered that could say what it is. */
const unknownServer = "clipstack";

type Check = (service: ServiceUnderTest) => Promise<readonly CheckResult[]>;

/** The checks of one environment that answers, and what they found. */
export class CheckRun {
  readonly checks: CheckResult[] = [];
  readonly measurements: Measurement[] = [];
  /** Names and versions that the servers gave. */
  readonly servers = new Set<string>();

  constructor(
    readonly environment: string,
    private readonly target: VerifyTarget,
    private readonly reference: Reference,
    private readonly options: CheckOptions,
  ) {}

  /**
   * Every check that sends requests, family by family, over all services.
   *
   * @param services - Services that answer; the others are skipped.
   * @param all - Services of the environment, in its order.
   */
  async requests(
    services: readonly ServiceUnderTest[],
    all: readonly ServiceUnderTest[],
    batching: Check,
  ): Promise<void> {
    const { reference } = this;
    for (const service of services) {
      const server = await serverVersion(service);
      if (server !== undefined) this.servers.add(server);
    }
    const families: readonly (readonly [CheckId, Check])[] = [
      ["endpoints", checkEndpoints],
      ["embedding", (service) => checkEmbedding(service, reference)],
      ["parity", (service) => checkParity(service, reference, this.target)],
      ["batches", (service) => checkBatches(service, reference)],
      ["batching", batching],
      ["errors", (service) => checkErrors(service, reference)],
      ["load", (service) => this.#load(service)],
    ];
    for (const [id, check] of families) await this.family(id, all, services, check);
  }

  /** One family of checks, over `services`; those that are not `ready` are skipped. */
  async family(
    id: CheckId,
    services: readonly ServiceUnderTest[],
    ready: readonly ServiceUnderTest[],
    check: Check,
  ): Promise<void> {
    for (const service of services) {
      this.options.signal.throwIfAborted();
      if (!ready.includes(service)) {
        this.report([resultOf(service, id, "skip", "it did not start")]);
        continue;
      }
      // a load says which path it is on
      if (id !== "load") this.phase(`${id}: ${service.workload.service.name}`);
      try {
        const results = await check(service);
        // what was stopped from outside fails for that reason alone
        this.options.signal.throwIfAborted();
        this.report(results);
      } catch (error) {
        this.options.signal.throwIfAborted();
        this.report([resultOf(service, id, "fail", reason(error))]);
      }
    }
  }

  phase(text: string): void {
    this.options.onEvent({ kind: "phase", environment: this.environment, text });
  }

  report(results: readonly CheckResult[]): void {
    for (const result of results) {
      this.checks.push(result);
      this.options.onEvent({ kind: "check", result });
    }
  }

  #load(service: ServiceUnderTest): Promise<readonly CheckResult[]> {
    return checkEachEndpoint(service, "load", async (target) => {
      this.phase(`load: ${target.endpointName}`);
      const { measurement, requests } = await this.#measure(service, target);
      this.measurements.push(measurement);
      this.options.onEvent({ kind: "measurement", measurement });
      const { samples: good, errors, imagesPerSecond } = measurement;
      const failed = requests - good;
      const measured = { requests, failed, imagesPerSecond };
      if (failed === 0 && good > 0) return { message: `${good} requests answered`, measured };
      const codes = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
      const message = `${failed} of ${requests} requests failed: ${codes.join(", ")}`;
      return { outcome: "fail", message, measured };
    });
  }

  /** Closed loop of single images on one path: maximum throughput, not the latency at a given rate. */
  async #measure(
    service: ServiceUnderTest,
    { endpointName: endpoint, url }: EndpointTarget,
  ): Promise<{ readonly measurement: Measurement; readonly requests: number }> {
    const { secondsPerPath, signal } = this.options;
    const { name, model } = service.workload.service;
    const isEmbed = endpoint === "embed-http";
    const requests = await prepareRequests(
      { endpoint, url, model, apiKey: isEmbed ? service.apiKey : undefined },
      { payload: isEmbed ? "jpeg" : "fp32", serialization: "binary" },
      this.reference.images,
      1,
    );
    const startedMs = clockMs();
    const load = startLoad(requests, { kind: "closed loop", concurrency });
    await sleep(secondsPerPath * 1_000, undefined, { signal }).catch(() => {});
    await load.stop(signal);
    signal.throwIfAborted();
    const seconds = (clockMs() - startedMs) / 1_000;
    const { samples } = load;
    const good = samples.filter(isGood);
    const { latencyMs: latency, histogram } = describeLatency(sortedLatencies(good));
    const measurement: Measurement = {
      environment: this.environment,
      service: name,
      endpoint,
      load: { kind: "closed loop", concurrency, imagesPerRequest: 1, seconds },
      samples: good.length,
      imagesPerSecond: good.length / seconds,
      latencyMs: latency && latencyOf(latency),
      histogram,
      errors: countCodes(samples),
    };
    return { measurement, requests: samples.length };
  }
}

function latencyOf({
  p50,
  p95,
  p99,
  max,
  p99Reliable,
}: NonNullable<Measurement["latencyMs"]>): Measurement["latencyMs"] {
  return { p50, p95, p99, max, p99Reliable };
}

/** One environment that was checked. */
export interface CheckedEnvironment {
  readonly subject: EnvironmentSubject;
  readonly model: ReferenceModel;
  readonly run: CheckRun;
}

/** Record of a run: the model of its first environment is the subject's, others are recorded with their environment. */
export async function recordOf(
  startedAt: Date,
  target: VerifyTarget,
  samples: readonly SampleImage[],
  environments: readonly CheckedEnvironment[],
  options: CheckOptions,
): Promise<VerifyRecord> {
  const [first] = environments;
  if (first === undefined) throw new UserError("no environment to verify");
  const runs = environments.map(({ run }) => run);
  const checks = runs.flatMap((run) => run.checks);
  const servers = new Set(runs.flatMap((run) => [...run.servers]));
  return {
    schema: recordSchemaVersion,
    kind: "verify",
    startedAt: startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    subject: {
      ...(await describeCommit(options.project)),
      target,
      server: [...servers].sort().join(", ") || unknownServer,
      model: first.model.subject,
      machine: describeMachine(),
      settings: {
        portOffset: options.portOffset,
        secondsPerEndpoint: options.secondsPerPath,
        concurrency,
        sampleImages: samples.map(({ name }) => name),
        ...parityLimits,
        p99MinimumSamples,
      },
    },
    environments: environments.map(({ subject, model }) =>
      model.file === first.model.file ? subject : { ...subject, model: model.subject },
    ),
    checks,
    measurements: runs.flatMap((run) => run.measurements),
    passed: checks.every(({ outcome }) => outcome !== "fail"),
  };
}
