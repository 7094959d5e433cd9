import { describe, type Workload } from "../artefact/workload.ts";
import {
  type CheckResult,
  type Measurement,
  recordSchemaVersion,
  type VerifyRecord,
  type VerifyTarget,
} from "../bench/record/record.ts";
import { UserError } from "../contract/user-error.ts";
import { describeCommit, describeMachine } from "../target/readings/machine.ts";
import { parityLimits } from "../target/reference/parity.ts";
import type { ChooseModel, ReferenceModel } from "../target/reference/reference.ts";
import type { References } from "../target/reference/references.ts";
import { reason } from "../target/requests/http-client.ts";
import { serverVersion } from "../target/service/server-version.ts";
import type { TargetService } from "../target/service/target-service.ts";
import { p99MinimumSamples } from "../target/stats/statistics.ts";
import type { EnvironmentSubject } from "../target/subject/subject.ts";
import type { Check, CheckContext } from "./checks/check.ts";
import { resultOf } from "./checks/check-result.ts";
import { loadConcurrency } from "./checks/load.ts";
import { checks } from "./checks/registry.ts";

/** Progress of a verification. */
export type VerifyEvent =
  | { readonly kind: "phase"; readonly environment?: string; readonly text: string }
  | { readonly kind: "check"; readonly result: CheckResult }
  | { readonly kind: "measurement"; readonly measurement: Measurement };

/** Options of a verification on any target. */
export interface CheckOptions {
  /** Folder of the project, for the commit and relative paths. */
  readonly project: string;
  /** Chooses the reference model that every endpoint of an environment is compared with. */
  readonly chooseModel: ChooseModel;
  readonly portOffset: number;
  /** Length of the load on each endpoint. */
  readonly secondsPerEndpoint: number;
  readonly signal: AbortSignal;
  readonly onEvent: (event: VerifyEvent) => void;
}

/** Server name in the record if no server responded. */
const unknownServer = "clipstack";

/** Input of the checks of one environment, apart from what every run sets. */
export type EnvironmentUnderTest = Omit<
  CheckContext,
  "environment" | "unavailable" | "loadSeconds" | "signal" | "onMeasurement"
>;

/** Runs the checks of one environment, and collects their results. */
export class CheckRun {
  readonly results: CheckResult[] = [];
  readonly measurements: Measurement[] = [];
  /** Names and versions reported by the servers. */
  readonly servers = new Set<string>();

  constructor(
    readonly environment: string,
    private readonly options: CheckOptions,
  ) {}

  async run(subject: EnvironmentUnderTest): Promise<void> {
    const { environment, options } = this;
    const context: CheckContext = {
      ...subject,
      environment,
      unavailable: new Set(),
      loadSeconds: options.secondsPerEndpoint,
      signal: options.signal,
      onMeasurement: (measurement) => {
        this.measurements.push(measurement);
        options.onEvent({ kind: "measurement", measurement });
      },
    };
    let identified = false;
    for (const check of checks) {
      if (check.sendsRequests && !identified) {
        await this.#identifyServers(context);
        identified = true;
      }
      await this.#check(check, context);
    }
  }

  /** Reports that a check of services cannot be run. */
  skip(id: string, workloads: readonly Workload[], message: string): void {
    const { environment } = this;
    this.report(
      workloads.map((workload) => ({
        ...{ id, environment, outcome: "skip", message, measured: {} },
        ...{ service: workload.service.name, resource: describe(workload) },
      })),
    );
  }

  phase(text: string): void {
    this.options.onEvent({ kind: "phase", environment: this.environment, text });
  }

  async #check(check: Check, context: CheckContext): Promise<void> {
    const { target, services } = context;
    if (check.only !== undefined && check.only !== target) {
      const { name, skipReason } = check;
      if (skipReason === undefined) return;
      this.report(services.map((service) => resultOf(service, name, "skip", skipReason)));
      return;
    }
    this.report(check.runEnvironment?.(context) ?? []);
    const { kinds } = check;
    for (const service of check.order?.(services) ?? services) {
      if (kinds?.includes(service.workload.service.kind) === false) continue;
      this.options.signal.throwIfAborted();
      if (check.runService !== undefined) await this.#checkService(check, service, context);
    }
  }

  async #checkService(
    { name, sendsRequests, runService }: Check,
    service: TargetService,
    context: CheckContext,
  ): Promise<void> {
    const { signal } = this.options;
    const serviceName = service.workload.service.name;
    if (sendsRequests) {
      if (context.unavailable.has(serviceName)) {
        this.report([resultOf(service, name, "skip", "the service did not start")]);
        return;
      }
      this.phase(`${name}: ${serviceName}`);
    }
    try {
      const results = (await runService?.(service, context)) ?? [];
      // an interrupted check fails only because of the interruption
      signal.throwIfAborted();
      this.report(results);
    } catch (error) {
      signal.throwIfAborted();
      this.report([resultOf(service, name, "fail", reason(error))]);
    }
  }

  async #identifyServers({ services, unavailable }: CheckContext): Promise<void> {
    for (const service of services) {
      if (unavailable.has(service.workload.service.name)) continue;
      const server = await serverVersion(service);
      if (server !== undefined) this.servers.add(server);
    }
  }

  report(results: readonly CheckResult[]): void {
    for (const result of results) {
      this.results.push(result);
      this.options.onEvent({ kind: "check", result });
    }
  }
}

/** Environment with its finished checks. */
export interface CheckedEnvironment {
  /** Absent for a server that no environment describes. */
  readonly subject?: EnvironmentSubject;
  /** None if the environment was skipped. */
  readonly models: readonly ReferenceModel[];
  readonly run: CheckRun;
}

/** Builds the record. The first model is the subject's; environments with other models record theirs. */
export async function recordOf(
  startedAt: Date,
  target: VerifyTarget,
  { samples }: References,
  environments: readonly CheckedEnvironment[],
  options: CheckOptions,
): Promise<VerifyRecord> {
  const [first] = environments;
  const model = first?.models[0];
  if (first === undefined || model === undefined) {
    const reasons = environments.flatMap(({ run }) => run.results.map(({ message }) => message));
    throw new UserError(
      [...new Set(reasons)].join("\n") || "verify needs an environment with a model, got none",
    );
  }
  const runs = environments.map(({ run }) => run);
  const results = runs.flatMap((run) => run.results);
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
      model: model.subject,
      machine: describeMachine(),
      settings: {
        portOffset: options.portOffset,
        secondsPerEndpoint: options.secondsPerEndpoint,
        concurrency: loadConcurrency,
        sampleImages: samples.map(({ name }) => name),
        ...parityLimits,
        p99MinimumSamples,
      },
    },
    environments: environments.flatMap(({ subject, models }) => {
      if (subject === undefined) return [];
      if (models.length > 1) return { ...subject, models: models.map((own) => own.subject) };
      const [own] = models;
      return own === undefined || own.file === model.file
        ? subject
        : { ...subject, model: own.subject };
    }),
    checks: results,
    measurements: runs.flatMap((run) => run.measurements),
    passed: results.every(({ outcome }) => outcome !== "fail"),
  };
}
