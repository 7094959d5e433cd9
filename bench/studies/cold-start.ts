import { rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Child } from "../../artefact/child-process.ts";
import {
  assembleRepository,
  describeExit,
  lastLinesOf,
  type ServerCommands,
  startProcess,
} from "../../artefact/simulation.ts";
import {
  type Instance,
  loopback,
  type ServerRole,
  type SimulationPlan,
} from "../../artefact/simulation-types.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { requestedModel } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { UserError } from "../../contract/user-error.ts";
import { embedBy } from "../../target/requests/embed-requests.ts";
import { type HttpClient, openHttpClient } from "../../target/requests/http-client.ts";
import { inferRows } from "../../target/requests/infer.ts";
import type { LoadImage } from "../../target/requests/load-items.ts";
import { median } from "../../target/stats/statistics.ts";
import type { ColdStart, EnvironmentStudy } from "./study.ts";

/** Time from the start of a service to its first responses. */
export const coldStartStudy: EnvironmentStudy = {
  kind: "environment",
  id: "cold-start",
  async run({ environment, record }) {
    const starts: ColdStart[] = [];
    const notes: string[] = [];
    try {
      notes.push(...(await environment.coldStarts((start) => starts.push(start))));
    } finally {
      if (starts.length > 0) {
        record.studies.push({ study: "cold-start", environment: environment.name, starts, notes });
      }
    }
  },
};

/** A service that can be started repeatedly. */
export interface StartableService {
  readonly service: string;
  readonly role: ServerRole;
  /** `http://host:port`. */
  readonly url: string;
  /** Model of the requests, and its name at a Triton server. */
  readonly spec: ModelSpec;
  readonly model: string;
  /** Bearer token of the service. */
  readonly apiKey?: string;
  /** Readiness URL; if absent, the role's default route. */
  readonly readyUrl?: string;
  readonly budgetSeconds: number;
  /** Resolves once the start is requested; the time is measured from before the request. */
  start(): Promise<void>;
  /** Returns one line if the service has ended. */
  ended(): string | undefined;
}

export interface ColdStartOptions {
  /** Model of the requests. */
  readonly spec: ModelSpec;
  readonly rounds: number;
  readonly image: LoadImage;
  readonly signal: AbortSignal;
  readonly onPhase: (text: string) => void;
  /** Called after each measured start, so that it is recorded even if the next one is interrupted. */
  readonly onStart: (start: ColdStart) => void;
}

const pollMs = 5;
const requestTimeoutMs = 120_000;
/** Number of requests of which the median is the warm request time. */
const warmRequests = 9;
const stopPatienceSeconds = 10;

const embed = { live: embedPaths.healthz, ready: embedPaths.readyz } as const;
const paths = {
  embed,
  triton: { live: oipPaths.live, ready: oipPaths.ready },
  baseline: embed,
} as const;

/**
 * Measures the start of each simulated service, one after another, in rounds. A Deployment has one replica, and a gateway
 * starts after its Triton servers.
 */
export async function coldStarts(
  plan: SimulationPlan,
  commands: ServerCommands,
  options: ColdStartOptions,
): Promise<void> {
  const first = plan.instances.filter(
    ({ workload }, i, all) => all.findIndex((other) => other.workload === workload) === i,
  );
  const gateways = first.filter(({ role }) => role !== "triton");
  const order = [...first.filter(({ role }) => role === "triton"), ...gateways];
  try {
    for (const { repository } of order)
      if (repository !== undefined) assembleRepository(repository);
    for (let round = 1; round <= options.rounds; round++) {
      const children: Child[] = [];
      try {
        for (const instance of order) {
          const service = localService(instance, options.spec, commands, children);
          options.onPhase(`starting ${instance.name}, round ${round} of ${options.rounds}`);
          options.onStart(await measureStart(service, round, options));
        }
      } finally {
        await Promise.all(children.map((child) => child.stop(stopPatienceSeconds)));
      }
    }
  } finally {
    for (const { repository } of order) {
      if (repository !== undefined) rmSync(repository.folder, { recursive: true, force: true });
    }
  }
}

/** A process of this machine; `children` receives each started process. */
function localService(
  instance: Instance,
  spec: ModelSpec,
  commands: ServerCommands,
  children: Child[],
): StartableService {
  const { workload, role, listeners, readyUrl, readyBudgetSeconds } = instance;
  const listener = listeners.find(({ protocol }) => protocol.endsWith("-http"));
  let child: Child | undefined;
  return {
    service: workload.service.name,
    role,
    url: `http://${loopback}:${listener?.local ?? 0}`,
    spec,
    model: requestedModel(workload.service, spec.name),
    readyUrl,
    budgetSeconds: readyBudgetSeconds,
    async start() {
      child = startProcess(instance, commands);
      children.push(child);
    },
    ended: () =>
      child?.exit && `ended ${describeExit(child.exit)} before it was ready${lastLinesOf(child)}`,
  };
}

/** Measures one start, from its request to the first warm inference. */
export async function measureStart(
  service: StartableService,
  round: number,
  { image, signal }: Pick<ColdStartOptions, "image" | "signal">,
): Promise<ColdStart> {
  const { role, url, spec, readyUrl = `${url}${paths[role].ready}` } = service;
  // new connections, so that every response is of the started process
  const bearer = service.apiKey === undefined ? undefined : { origin: url, key: service.apiKey };
  const http = openHttpClient(undefined, bearer, { closeAfterResponse: true });
  const transport = openHttpTransport({ url });
  try {
    const startedAt = performance.now();
    await service.start();
    const since = () => performance.now() - startedAt;
    const wait = async (address: string): Promise<number> => {
      while (!(await respondsOk(http, address))) {
        signal.throwIfAborted();
        const ended = service.ended();
        if (ended !== undefined) throw new UserError(`${service.service}: ${ended}`);
        if (since() > service.budgetSeconds * 1_000) {
          throw new UserError(
            `${service.service}: was not ready in ${service.budgetSeconds} s: ${address}`,
          );
        }
        await sleep(pollMs, undefined, { signal });
      }
      return since();
    };
    const liveMs = await wait(`${url}${paths[role].live}`);
    const readyMs = await wait(readyUrl);
    const request = async (): Promise<number> => {
      signal.throwIfAborted();
      const sentAt = performance.now();
      if (role !== "triton") await embedBy(http, url, "raw", [image], spec);
      else await inferRows(transport, service.model, spec, image.tensor, 1, requestTimeoutMs);
      return performance.now() - sentAt;
    };
    const firstRequestMs = await request();
    const warm: number[] = [];
    for (let i = 0; i < warmRequests; i++) warm.push(await request());
    const warmRequestMs = median(warm) ?? 0;
    return { service: service.service, round, liveMs, readyMs, firstRequestMs, warmRequestMs };
  } finally {
    await Promise.all([http.close(), transport.close()]);
  }
}

async function respondsOk(http: HttpClient, url: string): Promise<boolean> {
  try {
    return (await http.send(url, { timeoutMs: 2_000 })).status === 200;
  } catch {
    return false;
  }
}
