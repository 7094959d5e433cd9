import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parse } from "yaml";
import { readReleases } from "../../artefact/artefact.ts";
import { type Interrupt, Interrupted } from "../../artefact/interrupt.ts";
import { chartValues } from "../../constructs/kubernetes/chart-values.ts";
import { podObjectName } from "../../contract/pods.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { projectFolder } from "../../model-tools/files/folders.ts";
import { openCluster } from "../../verify/cluster/cluster-api.ts";
import {
  figuresText,
  judgeCandidate,
  minimumRequests,
  prometheusQuery,
  type Query,
  releaseFigures,
} from "../../verify/drills/canary.ts";
import { ClusterRun } from "../../verify/drills/cluster-run.ts";
import { canaryName, type DrillRecord } from "../../verify/drills/drill-record.ts";
import { recordOf } from "../../verify/drills/run-drill.ts";
import { readSnapshot } from "../../verify/drills/snapshot.ts";
import { CanaryReleases, imagesOf, type Release } from "../cluster/canary-releases.ts";
import { accessOf, reachCluster } from "../cluster/deployed-cluster.ts";
import { clusterEnvironment } from "../cluster/drill-target.ts";
import { environmentFile } from "../shared/artefact.ts";
import type { RunArguments } from "./run-options.ts";
import { verifyEnvironments } from "./verify-environments.ts";

export interface CanaryArguments extends Pick<RunArguments, "weights"> {
  /** Percentage of the requests that the candidate receives. */
  readonly weight: number;
  /** Time for which it receives them, in seconds. */
  readonly observe: number;
  /** Address of Prometheus. @default - the environment's */
  readonly prometheus?: string;
  readonly report: string;
}

interface Slo {
  readonly query: Query;
  /** Time that 99 % of the requests may take. */
  readonly latencySeconds: number;
}

const pollMs = 10_000;

/**
 * Installs a candidate beside the deployed release of an environment, verifies it, sends it a part of the requests, and either upgrades the
 * release or removes the candidate.
 *
 * @throws {UserError} before any change, if the environment is not deployed, has no route or no Prometheus.
 */
export async function runCanary(
  name: string,
  args: CanaryArguments,
  { signal, hold }: Interrupt,
): Promise<DrillRecord> {
  const startedAt = new Date();
  const environment = clusterEnvironment(name);
  const { file, displayPath } = environmentFile(name);
  const [declared] = readReleases(file, displayPath);
  if (declared === undefined) {
    throw new UserError(`${name}: must be deployed with the chart, got a stack without a release`);
  }
  // without `signal`, because an interruption must not abort the removal of the candidate
  const api = await openCluster(accessOf(environment));
  try {
    const target = {
      environment: name,
      access: accessOf(environment),
      namespace: declared.namespace,
      deployment: podObjectName("embed"),
    };
    const onStep = (line: string) => console.error(line);
    const load = { images: [], ratePerSecond: 0, concurrency: 0 };
    const run = new ClusterRun(
      api,
      { target, ...load, repository: projectFolder, signal, onStep },
      await readSnapshot(api, target),
    );
    const releases = new CanaryReleases(environment, declared, displayPath, run);
    const { prometheusRule, triton } = chartValues.parse(parse(declared.values[0] ?? "{}"));
    const url = args.prometheus ?? triton.autoscaling.prometheus.url;
    if (url === "") {
      throw new UserError(`--prometheus must be set, because ${name} has no address of Prometheus`);
    }
    const query = prometheusQuery(api, url);
    await query("vector(1)");
    const revision = await releases.revision();
    const release = hold("removing the candidate");
    try {
      await releases.remove(); // left by a run that was killed
      const slo = { query, latencySeconds: prometheusRule.latencySloSeconds };
      if (await isGood(releases, args, slo)) await promote(releases, revision);
    } catch (error) {
      if (!signal.aborted) run.check("the canary completes", false, messageOf(error));
    } finally {
      run.beginRestoring();
      await check(run, "all requests go to the release, and the candidate is removed", async () => {
        await releases.remove();
        return { passed: true, text: releases.candidate.name };
      });
      release();
    }
    if (signal.aborted) throw new Interrupted(run.steps.at(-1)?.text ?? "");
    return await recordOf({ name: canaryName }, run, startedAt, projectFolder);
  } finally {
    await api.close();
  }
}

/** Installs, verifies and observes the candidate until a check fails. */
async function isGood(releases: CanaryReleases, args: CanaryArguments, slo: Slo): Promise<boolean> {
  const { run, candidate } = releases;
  return (
    (await check(run, "the pods of the candidate become ready", async () => {
      await releases.install(candidate, run.signal);
      return { passed: true, text: imagesOf(candidate) };
    })) &&
    (await check(run, "the candidate passes verify", () => verifyCandidate(releases, args))) &&
    (await check(run, "the candidate meets the SLO", async () => {
      await releases.route(args.weight);
      run.step(`${args.weight} % of the requests go to the candidate for ${args.observe} s`);
      return observe(releases, args.observe, slo);
    }))
  );
}

/** Upgrades the release, and rolls it back if its pods do not become ready. */
async function promote(releases: CanaryReleases, revision: number): Promise<void> {
  const { run, stable } = releases;
  await check(run, "the release is upgraded", async () => {
    try {
      await releases.install(stable, run.signal);
      return { passed: true, text: `from revision ${revision}` };
    } catch (error) {
      await releases.helm(["rollback", stable.name, String(revision)]);
      await releases.untilReady(stable);
      return { passed: false, text: `${messageOf(error)}; rolled back to revision ${revision}` };
    }
  });
}

/** Records the outcome of a step. An error is a failure; an interruption ends the run. */
async function check(
  run: ClusterRun,
  claim: string,
  work: () => Promise<{ readonly passed: boolean; readonly text: string }>,
): Promise<boolean> {
  const { passed, text } = await work().catch((error: unknown) => {
    run.signal.throwIfAborted();
    return { passed: false, text: messageOf(error) };
  });
  run.check(claim, passed, text);
  return passed;
}

/** Verifies a pod of the candidate, forwarded by the API server. */
async function verifyCandidate(
  { environment, stable, candidate, run }: CanaryReleases,
  { weights, report }: CanaryArguments,
) {
  const services = environment.services
    .filter(({ kind }) => kind === "embed")
    .map((service) => ({
      ...service,
      endpoints: service.endpoints.map((it) => ({
        ...it,
        url: it.url.replace(stable.embed, candidate.embed),
      })),
    }));
  const access = await reachCluster({ ...environment, services }, run.signal);
  try {
    const url = access.url(services[0]?.endpoints[0]?.url ?? "");
    const { record, saved } = await verifyEnvironments(
      [environment.name],
      {
        weights,
        report: resolve(projectFolder, report),
        url: [{ endpoint: "embed-http", url }],
        target: "simulation",
        synth: false,
        portOffset: 0,
        seconds: 3,
      },
      () => {},
      (line) => run.step(line),
    );
    return { passed: record.passed, text: saved.html };
  } finally {
    await access.close();
  }
}

/** Observes the candidate under its share of the requests, and judges it by the SLO. */
async function observe(
  { stable, candidate, run }: CanaryReleases,
  seconds: number,
  { query, latencySeconds }: Slo,
) {
  const began = performance.now();
  for (;;) {
    await sleep(pollMs, undefined, { signal: run.signal });
    const elapsed = Math.round((performance.now() - began) / 1_000);
    const figures = ({ namespace, embed: deployment }: Release) =>
      releaseFigures(query, { namespace, deployment }, elapsed, latencySeconds);
    const [own, other] = await Promise.all([figures(candidate), figures(stable)]);
    const verdict = judgeCandidate(own, other);
    const text = `candidate: ${figuresText(own, latencySeconds)}; stable: ${figuresText(other, latencySeconds)}`;
    if (verdict === "failed" || elapsed >= seconds) {
      const few = `at least ${minimumRequests} requests of the candidate are required; `;
      return { passed: verdict === "passed", text: verdict === "undecided" ? few + text : text };
    }
    run.step(text);
  }
}
