import { randomInt } from "node:crypto";
import { readFile } from "node:fs/promises";
import { loadavg } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseAllDocuments } from "yaml";
import type { HelmRelease } from "../../artefact/helm-template.ts";
import { type HttpClient, openHttpClient } from "../../target/requests/http-client.ts";
import { openCluster } from "../../verify/cluster/cluster-api.ts";
import { prometheusQuery } from "../../verify/drills/canary.ts";
import { DrillLoad, failureText, type Pace } from "../../verify/drills/drill-load.ts";
import type { PhaseLoad } from "../../verify/drills/drill-record.ts";
import { trialImages } from "../trials/trial-images.ts";
import {
  createCluster,
  embedImage,
  followObjects,
  helm,
  hosts,
  installComponents,
  type LabCluster,
  labEnv,
  start,
  synthesized,
} from "./cluster.ts";
import { parentRefs, throughGrpcRoute, throughIngress } from "./routes.ts";

/** One shown behaviour. */
export interface Finding {
  readonly claim: string;
  readonly passed: boolean;
  readonly observed: string;
  /** Load average of the machine over the last minute, at the end. */
  readonly loadAverage: number;
}

export interface ClusterRecord {
  readonly schema: 1;
  readonly kind: "production-cluster";
  readonly startedAt: string;
  readonly kubernetes: string;
  readonly findings: readonly Finding[];
  /** Requests from this machine through the Gateway, by phase. */
  readonly load: readonly PhaseLoad[];
  /** Failed requests, with times in seconds since the start of their phase. */
  readonly failures: ReturnType<DrillLoad["failuresOf"]>;
}

const namespace = "clipstack";
const apiKey = "key-of-the-laboratory-0001";
const prometheus = "http://prometheus.monitoring.svc:9090";
/** Load that one Triton server serves within the target of the queue time, and load that it does not. */
const lowLoad: Pace = { kind: "fixed rate", ratePerSecond: 8 };
const highLoad: Pace = { kind: "closed loop", concurrency: 24 };

const limits = (cpuMillicores: number) => ({ cpuMillicores, memoryMiB: 768 });
const requests = { cpuMillicores: 50, memoryMiB: 256 };

/** Settings of the environment. The Triton servers have a third of a core, so that requests wait in their queue. */
const settings = (image: string) => ({
  ...{ stack: "kubernetes", accelerator: "cpu", namespace, createNamespace: false },
  embed: {
    ...{ image, keySecret: "embed-key" },
    resources: { requests, limits: limits(1_000) },
    autoscaler: { minReplicas: 2, maxReplicas: 2 },
  },
  triton: {
    ...{ server: "emulator", image },
    resources: { requests, limits: limits(300) },
    autoscaler: {
      ...{ minReplicas: 1, maxReplicas: 4, prometheus },
      ...{ targetQueueMilliseconds: 2, scaleDownWindowSeconds: 30 },
    },
  },
  serviceMonitor: { intervalSeconds: 5 },
  quota: {
    requests: { cpuMillicores: 1_500, memoryMiB: 8_192 },
    limits: { cpuMillicores: 8_000, memoryMiB: 12_288 },
    pods: 14,
  },
  chartValues: {
    httpRoute: { enabled: true, parentRefs, hostnames: [hosts.embed] },
    ingress: {
      ...{ enabled: true, className: "traefik" },
      ...{ host: hosts.ingress, tlsSecretName: "localhost-tls" },
      annotations: { "traefik.ingress.kubernetes.io/router.tls": "true" },
    },
    prometheusRule: { latencySloSeconds: 1 },
    triton: { autoscaling: { scaleToZero: { enabled: true, afterSeconds: 60 } } },
  },
});

/** Values of an installation that shows only the pods. */
const off = { enabled: false };
const onlyPods = {
  ...{ fixedUser: false, httpRoute: off, ingress: off, serviceMonitor: off, quota: off },
  triton: { autoscaling: { ...off, scaleToZero: off } },
};

class Laboratory {
  readonly findings: Finding[] = [];
  readonly #phases: string[] = [];
  readonly load: DrillLoad;

  constructor(
    readonly cluster: LabCluster,
    readonly ca: string,
    readonly signal: AbortSignal,
    readonly onLine: (line: string) => void,
  ) {
    const { url } = this;
    const route = async () => ({ url, http: this.client(), connect: { ca } });
    this.load = new DrillLoad(route, trialImages(60_000), apiKey);
  }

  /** Address of the Gateway on this machine. */
  get url(): string {
    return `https://localhost:${this.cluster.port}`;
  }

  client(): HttpClient {
    const bearer = { origin: this.url, key: apiKey };
    return openHttpClient(64, bearer, { closeAfterResponse: true, tls: { ca: this.ca } });
  }

  get env() {
    return { ...labEnv(this.cluster.folder), INFERENCE_API_KEY: apiKey };
  }

  get recordedLoad(): Pick<ClusterRecord, "load" | "failures"> {
    return {
      load: this.#phases.map((phase) => this.load.of(phase)),
      failures: this.#phases.flatMap((phase) => this.load.failuresOf(phase)),
    };
  }

  async show(claim: string, work: () => Promise<string>): Promise<void> {
    this.signal.throwIfAborted();
    const began = performance.now();
    const { passed, observed } = await work().then(
      (observed) => ({ passed: true, observed }),
      (error: unknown) => ({ passed: false, observed: String(error).slice(0, 2_000) }),
    );
    this.findings.push({ claim, passed, observed, loadAverage: loadavg()[0] ?? 0 });
    const seconds = Math.round((performance.now() - began) / 1_000);
    this.onLine(`${passed ? "✔" : "✘"} ${claim}: ${observed} (${seconds} s)`);
  }

  /** Shows a behaviour under a load, of which no request may fail. */
  async under(pace: Pace, claim: string, work: () => Promise<string>): Promise<void> {
    await this.show(claim, async () => {
      if (this.load.pace !== pace) await this.load.start(pace, this.signal);
      this.load.phase(claim);
      this.#phases.push(claim);
      const observed = await work();
      const failures = failureText(this.load.of(claim));
      if (failures !== "") throw new Error(`${observed}; ${failures}`);
      return `${observed}; 0 of ${this.load.of(claim).requests} requests failed`;
    });
  }

  /** Waits for a number of ready Triton pods. @returns the numbers until then: `1 → 2 (31 s) → 4 (48 s)` */
  async pods(expected: number): Promise<string> {
    const began = performance.now();
    const steps: string[] = [];
    for (let last = -1; ; ) {
      const path = "jsonpath={.status.readyReplicas}";
      const text = await this.cluster.kubectl(
        `get deploy/clipstack-triton -n ${namespace} -o ${path}`,
      );
      const ready = Number(text || 0);
      const seconds = Math.round((performance.now() - began) / 1_000);
      if (ready !== last) steps.push(last < 0 ? `${ready}` : `${ready} (${seconds} s)`);
      last = ready;
      if (ready === expected) return steps.join(" → ");
      if (seconds > 400) throw new Error(`${steps.join(" → ")}; not ${expected} in ${seconds} s`);
      await sleep(1_000, undefined, { signal: this.signal });
    }
  }

  /** Synthesizes the environment with changed settings, and returns its release. */
  async environment(image: string, triton: object = {}, embed: object = {}): Promise<HelmRelease> {
    const own = settings(image);
    const changed = { triton: { ...own.triton, ...triton }, embed: { ...own.embed, ...embed } };
    return synthesized(this.cluster, "production", { ...own, ...changed });
  }

  /** Runs `clipstack canary`. @returns the judgement of the candidate @throws unless the outcome is as expected */
  async canary(expected: "promoted" | "rolled back"): Promise<string> {
    const words = "canary production --weight 30 --observe 90 --weights tiny --json";
    const { exitCode, stdout, stderr } = await start(
      `${process.execPath} cli/clipstack.mjs ${words}`,
      { env: this.env },
      false,
    );
    this.onLine(stderr.replaceAll(/^/gm, "    "));
    const outcome = exitCode === 0 ? "promoted" : "rolled back";
    if (outcome !== expected || !stdout.startsWith("{")) throw new Error(`exit code ${exitCode}`);
    const { checks } = JSON.parse(stdout) as { checks: { claim: string; message: string }[] };
    return `${outcome}; ${checks.find(({ claim }) => /SLO/.test(claim))?.message}`;
  }

  /** Creates a namespace that admits only pods of the Pod Security level `restricted`, with the key of the clients. */
  async restrictedNamespace(name: string): Promise<void> {
    const { kubectl } = this.cluster;
    await kubectl(`create namespace ${name}`);
    await kubectl(`label namespace ${name} pod-security.kubernetes.io/enforce=restricted`);
    await kubectl(`create secret generic embed-key -n ${name} --from-literal=api-key=${apiKey}`);
    await this.cluster.certificateSecret(name);
  }
}

/** Creates the cluster, shows every behaviour, and removes the cluster. */
export async function productionCluster(
  signal: AbortSignal,
  onLine: (line: string) => void,
): Promise<ClusterRecord> {
  const startedAt = new Date().toISOString();
  const image = await embedImage();
  const cluster = await createCluster();
  const controllers = new AbortController();
  let following: Promise<void> | undefined;
  let endLoad = async () => {};
  try {
    onLine(`KUBECONFIG=${cluster.kubeconfig}`);
    await installComponents(cluster);
    await cluster.load(image);
    const ca = await readFile(join(cluster.folder, "ca.crt"), "utf8");
    const lab = new Laboratory(cluster, ca, signal, onLine);
    endLoad = () => lab.load.end(signal);
    following = followObjects(cluster, controllers.signal);
    const release = await lab.environment(image);
    await lab.show("pods run with a random user at the Pod Security level restricted", () =>
      randomUser(lab, release),
    );
    await lab.show(
      "the chart is installed with a key, a route, ServiceMonitors and a ScaledObject",
      () => install(lab, release),
    );
    await lab.show("the first request adds a Triton server", () => firstRequest(lab));
    await lab.under(
      lowLoad,
      "the Gateway serves HTTPS with a certificate of a test authority",
      async () => {
        await sleep(10_000, undefined, { signal });
        return lab.url;
      },
    );
    await lab.under(lowLoad, "the chart's Ingress serves HTTPS", () =>
      throughIngress(cluster, apiKey),
    );
    await lab.under(lowLoad, "the chart's GRPCRoute leads to Triton", () =>
      throughGrpcRoute(lab, release, namespace),
    );
    await lab.under(
      lowLoad,
      "Prometheus scrapes the ServiceMonitors and answers KEDA's query",
      () => scraped(lab),
    );
    await lab.under(highLoad, "KEDA adds Triton servers under load", () => lab.pods(4));
    await lab.under(lowLoad, "KEDA removes them afterwards", () => lab.pods(1));
    await lab.environment(image, {}, { server: { logLevel: "warn" } });
    await lab.under(lowLoad, "a good candidate is promoted", () => lab.canary("promoted"));
    await lab.environment(image, { maxQueueDelayMicroseconds: 1_000_000 });
    await lab.under(lowLoad, "a slow candidate is rolled back", () => lab.canary("rolled back"));
    await lab.load.end(signal);
    await lab.show("KEDA removes the last Triton server without requests", () => lab.pods(0));
    const { serverVersion } = JSON.parse(await cluster.kubectl("version --output=json"));
    return {
      ...{ schema: 1, kind: "production-cluster", startedAt },
      ...{ kubernetes: serverVersion.gitVersion, findings: lab.findings, ...lab.recordedLoad },
    };
  } finally {
    controllers.abort();
    await endLoad();
    await following;
    await cluster.remove();
  }
}

async function randomUser(lab: Laboratory, release: HelmRelease): Promise<string> {
  const { kubectl } = lab.cluster;
  const name = "random-user";
  await lab.restrictedNamespace(name);
  const runAsUser = randomInt(1_000_000_000, 2_000_000_000);
  const text = await helm(
    lab.cluster,
    `template clipstack --no-hooks -n ${name}`,
    release,
    onlyPods,
  );
  const objects = parseAllDocuments(text).map((document) => {
    const object = document.toJS();
    // as OpenShift's security context constraints do
    if (object?.kind === "Deployment") {
      Object.assign(object.spec.template.spec.securityContext, { runAsUser, fsGroup: runAsUser });
    }
    return JSON.stringify(object);
  });
  await kubectl(`apply -n ${name} --filename -`, objects.join("\n---\n"));
  await kubectl(`wait --for=condition=Available --timeout=300s --all deployment -n ${name}`);
  const user = await kubectl(`exec -n ${name} deployment/clipstack-embed -- id -u`);
  await kubectl(`delete namespace ${name} --wait=false`);
  if (user !== String(runAsUser)) throw new Error(`expected user ${runAsUser}, got ${user}`);
  return `gateways and Triton server ready as user ${user}`;
}

async function install(lab: Laboratory, release: HelmRelease): Promise<string> {
  await lab.restrictedNamespace(namespace);
  await helm(lab.cluster, `upgrade --install clipstack -n ${namespace}`, release);
  for (const name of ["triton", "embed"]) {
    await lab.cluster.kubectl(
      `rollout status -n ${namespace} --timeout=300s deployment/clipstack-${name}`,
    );
  }
  return "pods ready";
}

async function scraped({ cluster, signal }: Laboratory): Promise<string> {
  const api = await openCluster(cluster);
  try {
    const query = prometheusQuery(api, prometheus);
    await sleep(40_000, undefined, { signal });
    const targets = await query(`sum(up{namespace="${namespace}"})`);
    if (targets !== 3) throw new Error(`expected 3 targets that are up, got ${targets}`);
    const path = "jsonpath={.spec.triggers[0].metadata.query}";
    const expression = await cluster.kubectl(
      `get scaledobject/clipstack-triton -n ${namespace} -o ${path}`,
    );
    const value = await query(expression);
    if (value === undefined) throw new Error("KEDA's query has no data");
    return `3 targets up, queue time ${value.toFixed(1)} ms`;
  } finally {
    await api.close();
  }
}

/** Repeats a request until every gateway has found the first Triton server; until then, it responds with 503. */
async function firstRequest(lab: Laboratory): Promise<string> {
  const http = lab.client();
  const began = performance.now();
  const request = { body: trialImages()[0]?.bytes, headers: { "content-type": "image/jpeg" } };
  let first: number | undefined;
  let answered = 0;
  try {
    for (;;) {
      const response = await http.send(`${lab.url}/embed`, request).catch(() => undefined);
      const seconds = Math.round((performance.now() - began) / 1_000);
      if (response?.status === 200) first ??= seconds;
      answered = response?.status === 200 ? answered + 1 : 0;
      if (answered === 10)
        return `0 → 1, embedding after ${first} s, from every gateway after ${seconds} s`;
      if (answered > 0) continue;
      const { status = 503 } = response ?? {};
      if (status !== 503 || seconds > 300) throw new Error(`status ${status} after ${seconds} s`);
      await sleep(1_000, undefined, { signal: lab.signal });
    }
  } finally {
    await http.close();
  }
}
