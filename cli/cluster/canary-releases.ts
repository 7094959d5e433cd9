import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { type HelmRelease, helmMissing, renderRelease } from "../../artefact/helm-template.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { Environment } from "../../contract/environment.ts";
import { podObjectName } from "../../contract/pods.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { type RouteRule, weightedRules } from "../../verify/drills/canary.ts";
import type { ClusterRun } from "../../verify/drills/cluster-run.ts";
import { runProgram } from "../shared/run-program.ts";
import { objectPath } from "./deployed-cluster.ts";
import { waitForRollout } from "./rollout.ts";

/** Time in which a Gateway applies a changed route, before the pods that it led to are removed. */
const routeMs = 10_000;
const helmMs = 120_000;
/** Only prevents hangs: a Deployment has a deadline of its own. */
const rolloutMs = 24 * 3_600_000;

/** Values of the candidate: one pod of each component, and no object that the stable release has for both. */
const off = { enabled: false };
const pods = { replicas: 1, autoscaling: off, budget: off, service: { type: "ClusterIP" } };
const candidateValues = {
  embed: { ...pods, service: { type: "ClusterIP", nodePort: null } },
  triton: { ...pods, autoscaling: { ...off, scaleToZero: off, schedules: [] } },
  ...{ ingress: off, httpRoute: off, grpcRoute: off, quota: off, limitRange: off },
  ...{ prometheusRule: off, monitoring: { dashboards: off } },
};

/** Release of the chart. */
export interface Release extends HelmRelease {
  readonly objects: readonly DeclaredObject[];
  /** Name of the Deployment and the Service of its embed server. */
  readonly embed: string;
}

function releaseOf(release: HelmRelease, displayPath: string): Release {
  const objects = renderRelease(release, displayPath);
  return { ...release, objects, embed: podObjectName("embed", release.name) };
}

function deploymentsOf({ objects }: Release) {
  return objects.map(({ manifest }) => manifest).filter(({ kind }) => kind === "Deployment");
}

/** Images of the pods of a release, separated by commas. */
export function imagesOf(release: Release): string {
  const text = JSON.stringify(deploymentsOf(release));
  return [...new Set(text.match(/(?<="image":")[^"]+/g))].join(", ");
}

/** Deployed release of an environment, and a candidate that replaces it once it has proved itself on a share of the requests. */
export class CanaryReleases {
  readonly stable: Release;
  readonly candidate: Release;
  /** API path of the HTTPRoute. */
  readonly #route: string;

  constructor(
    readonly environment: Environment,
    declared: HelmRelease,
    displayPath: string,
    readonly run: ClusterRun,
  ) {
    this.stable = releaseOf(declared, displayPath);
    const values = [...declared.values, JSON.stringify(candidateValues)];
    const name = `${declared.name}-canary`;
    this.candidate = releaseOf({ ...declared, name, values }, displayPath);
    const route = this.stable.objects.find(({ manifest }) => manifest.kind === "HTTPRoute");
    if (route === undefined) {
      throw new UserError(
        `${environment.name}: chartValues.httpRoute.enabled must be true, because a canary needs the weights of a route`,
      );
    }
    this.#route = objectPath(route.manifest);
  }

  /** Runs helm in the namespace of the releases. @throws with the last line of its error */
  async helm(args: readonly string[], signal?: AbortSignal): Promise<string> {
    const { kubeconfig, where } = this.environment;
    const file = kubeconfig?.replace(/^~(?=\/)/, homedir());
    const { outcome, exitCode, stdout, stderr } = await runProgram(
      "helm",
      [
        ...args,
        ...["--namespace", this.stable.namespace, "--kube-context", where],
        ...(file === undefined ? [] : ["--kubeconfig", file]),
      ],
      { timeoutMs: helmMs, signal },
    );
    signal?.throwIfAborted();
    if (outcome === "missing") throw new UserError(helmMissing);
    if (exitCode !== 0) throw new Error(`helm ${args[0]}: ${stderr.trim().split("\n").at(-1)}`);
    return stdout;
  }

  /** Revision of the stable release. @throws {UserError} if it is not deployed by Helm */
  async revision(): Promise<number> {
    const text = await this.helm(["status", this.stable.name, "--output", "json"]).catch(
      (error: unknown) => {
        throw new UserError(`${this.environment.name} must be deployed: ${messageOf(error)}`);
      },
    );
    return z.object({ version: z.number() }).parse(JSON.parse(text)).version;
  }

  /** Installs or upgrades a release, and waits for its Deployments. @throws if a pod does not become ready */
  async install(release: Release, signal: AbortSignal): Promise<void> {
    const folder = mkdtempSync(join(tmpdir(), "clipstack-canary-"));
    try {
      const files = release.values.flatMap((text, index) => {
        const file = join(folder, `${index}.yaml`);
        writeFileSync(file, text, { mode: 0o600 });
        return ["--values", file];
      });
      await this.helm(["upgrade", "--install", release.name, release.chart, ...files], signal);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    await this.untilReady(release, signal);
  }

  async untilReady(release: Release, signal?: AbortSignal): Promise<void> {
    for (const { metadata } of deploymentsOf(release)) {
      const deployment = metadata.name ?? "";
      const failure = await waitForRollout({
        reader: { api: this.run.api, namespace: release.namespace },
        ...{ deployment, replicas: 0, timeoutMs: rolloutMs, intervalMs: 1_000, signal },
        onState: (text) => this.run.options.onStep?.(`         ${deployment}: ${text}`),
      });
      if (failure !== undefined) throw new Error(`${deployment}: ${failure.failed}`);
    }
  }

  /** Sends a percentage of the requests to the candidate. */
  async route(percent: number): Promise<void> {
    const route = await this.run.api.get<{ spec: { rules: readonly RouteRule[] } }>(this.#route);
    if (route === undefined) throw new UserError(`${this.#route} does not exist`);
    const { stable, candidate } = this;
    const value = weightedRules(route.spec.rules, stable.embed, candidate.embed, percent);
    await this.run.api.patch(this.#route, "json", [{ op: "replace", path: "/spec/rules", value }]);
  }

  /** Sends all requests to the stable release, and removes the candidate. */
  async remove(): Promise<void> {
    const installed = await this.helm(["list", "--all", "--short"]);
    await this.route(0);
    if (!installed.split("\n").includes(this.candidate.name)) return;
    await sleep(routeMs);
    await this.helm(["uninstall", this.candidate.name]);
  }
}
