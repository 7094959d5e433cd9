import { cp, mkdir } from "node:fs/promises";
import { loadavg } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseAllDocuments } from "yaml";
import { keys, readJob } from "../../bulk/job/job.ts";
import { type JobStatus, jobStatus } from "../../bulk/job/status.ts";
import { openStore } from "../../bulk/store/open-store.ts";
import { readFailures, readPart } from "../../bulk/table/part.ts";
import { defaultStaleSeconds } from "../../bulk/work/settings.ts";
import { mapConcurrently } from "../../inference/threads/map-concurrently.ts";
import { loadImages, makeLoadImages } from "../../model-tools/samples/load-images.ts";
import {
  base,
  build,
  createCluster,
  embedImage,
  helm,
  type LabCluster,
  project,
  run,
  start,
  synthesized,
} from "../production-cluster/cluster.ts";

/** State of the pods at one time. */
interface Point {
  readonly atSeconds: number;
  /** Images with a result, from records and claims; absent while the bucket throttles this machine as well. */
  readonly images?: number;
  readonly runningPods: number;
  /** Working set of each pod, in MiB. */
  readonly memoryMiB: readonly number[];
}

interface JobRun {
  readonly name: string;
  readonly seconds: number;
  readonly imagesPerSecond: number;
  readonly rows: number;
  readonly errors: JobStatus["errors"];
  /** Largest resident size of a worker. */
  readonly peakRssMiB: number;
  /** Failed pods as the Job counts them. */
  readonly failedPods: number;
  readonly kills: readonly { readonly atSeconds: number; readonly kind: string }[];
  /** Requests that the bucket rejected with 503 SlowDown. */
  readonly throttled: number;
  readonly timeline: readonly Point[];
  /** Load average of the machine over the last minute, at the end. */
  readonly loadAverage: number;
}

export interface BulkClusterRecord {
  readonly schema: 1;
  readonly kind: "bulk-cluster";
  readonly startedAt: string;
  readonly images: number;
  readonly runs: readonly JobRun[];
  /** Empty if every image is in both tables once and the tables are equal. */
  readonly problems: readonly string[];
}

const namespace = "bulk";
const source = "s3://photos/2026";
const workers = 4;
const killSeconds = 20;
/** Kubernetes replaces the pods of an index after 10, 20, 40, … s, up to 10 min: after more kills, no pod would be left for most of the time. */
const maxKills = 12;
/** Time within a disturbed run in which the bucket throttles. */
const throttle = { fromSeconds: 30, toSeconds: 90 };
const pointSeconds = 10;
const maxDifference = 1e-5;
const credentials = { AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "testsecret" };

/** Creates the cluster, embeds the images twice, compares the tables, and removes the cluster. */
export async function bulkCluster(
  images: number,
  signal: AbortSignal,
  onLine: (line: string) => void,
): Promise<BulkClusterRecord> {
  const startedAt = new Date().toISOString();
  const image = await embedImage();
  const cluster = await createCluster();
  try {
    onLine(`KUBECONFIG=${cluster.kubeconfig}`);
    await cluster.load(image);
    await installStorage(cluster);
    await fillBucket(cluster, images);
    onLine(`${images} images in the bucket`);
    await cluster.kubectl(`create namespace ${namespace}`);
    await cluster.kubectl(
      `label namespace ${namespace} pod-security.kubernetes.io/enforce=restricted`,
    );
    const literals = Object.entries(credentials).map(([key, value]) => {
      return `--from-literal=${key}=${value}`;
    });
    await cluster.kubectl(`create secret generic bucket -n ${namespace} ${literals.join(" ")}`);
    const runs: JobRun[] = [];
    const problems: string[] = [];
    for (const name of ["undisturbed", "disturbed"]) {
      await clipstack(`bulk plan ${source} --job s3://vectors/${name} --shard-images 500`);
      const result = await runJob(cluster, image, name, signal);
      runs.push(result);
      const { timeline: _, kills, ...figures } = result;
      onLine(JSON.stringify({ ...figures, kills: kills.length }));
      const verify = `bulk verify s3://vectors/${name} --sample 200 --weights tiny`;
      const { exitCode, stdout, stderr } = await clipstack(verify, false);
      onLine(`${stdout}${stderr}`);
      if (exitCode !== 0) problems.push(`${verify}: exit code ${exitCode}: ${stdout}${stderr}`);
      if (result.rows !== images) problems.push(`${name}: ${result.rows} of ${images} rows`);
    }
    problems.push(...(await differences("undisturbed", "disturbed", images)));
    onLine(problems.join("\n") || `the tables are equal in ${images} rows`);
    return { schema: 1, kind: "bulk-cluster", startedAt, images, runs, problems };
  } finally {
    await cluster.remove();
  }
}

const clipstack = (words: string, reject = true) =>
  start(`${process.execPath} cli/clipstack.mjs ${words}`, {}, reject);

/** Installs the S3 server, and lets this process and its children use it. */
async function installStorage({ kubectl, load, port }: LabCluster): Promise<void> {
  const files = ["bulk/test-faulty-endpoint.ts", "lab/bulk-cluster/storage-proxy.ts"];
  const dockerfile = `FROM ${base}\nCOPY versitygw /usr/local/bin/\nCOPY app /app\n`;
  const prepare = async (context: string) => {
    await cp(process.env.CLIPSTACK_S3_SERVER ?? "", join(context, "versitygw"));
    for (const file of files) {
      await mkdir(dirname(join(context, "app", file)), { recursive: true });
      await cp(join(project, file), join(context, "app", file));
    }
  };
  await load(await build("local/storage:lab", "--file -", prepare, dockerfile));
  await kubectl(`apply --filename ${join(project, "lab/bulk-cluster/components.yaml")}`);
  await kubectl("rollout status -n storage --timeout=120s deployment/storage");
  Object.assign(process.env, credentials, { AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${port}` });
}

/** Writes a few thousand distinct images, and links them under all names. */
async function fillBucket({ kubectl }: LabCluster, images: number): Promise<void> {
  const distinct = Math.min(2_000, Math.ceil(images / 10));
  const bucket = await openStore("s3://photos/distinct");
  const files = await makeLoadImages({ ...loadImages.thumbnail, count: distinct });
  await mapConcurrently([...files.entries()], 8, ([index, file]) =>
    bucket.write(`${index}.jpg`, file),
  );
  // links share the etag, an attribute of the file
  const script = `const { linkSync, mkdirSync } = require("node:fs");
for (let i = 0; i < ${images}; i++) {
  const folder = "/data/photos/2026/" + String(Math.floor(i / 1000)).padStart(4, "0");
  if (i % 1000 === 0) mkdirSync(folder, { recursive: true });
  linkSync("/data/photos/distinct/" + (i % ${distinct}) + ".jpg", folder + "/" + String(i).padStart(6, "0") + ".jpg");
}`;
  await kubectl("exec -i -n storage deployment/storage -c s3 -- node -", script);
}

/** Runs a planned job with the Indexed Job of the chart. @throws if it does not complete */
async function runJob(
  cluster: LabCluster,
  image: string,
  name: string,
  signal: AbortSignal,
): Promise<JobRun> {
  const { kubectl } = cluster;
  const release = await synthesized(cluster, "nightly", {
    ...{ stack: "bulk", namespace, createNamespace: false, image, model: { weights: "image" } },
    job: {
      ...{ job: `s3://vectors/${name}`, workers, retries: 100, credentialsSecret: "bucket" },
      egress: [{ ports: [{ protocol: "TCP", port: 7071 }] }],
      extraEnv: [{ name: "AWS_ENDPOINT_URL_S3", value: "http://storage.storage.svc:7071" }],
    },
  });
  const text = await helm(cluster, `template ${name} --no-hooks -n ${namespace}`, release);
  const objects = parseAllDocuments(text).map((document) => {
    const object = document.toJS();
    if (object?.kind === "Job") {
      // four pods of one core on a node with two
      object.spec.template.spec.containers[0].resources.requests.cpu = "200m";
    }
    return JSON.stringify(object);
  });
  await kubectl(`apply -n ${namespace} --filename -`, objects.join("\n---\n"));
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1_000;
  const disturbs = name === "disturbed";
  const timeline: Point[] = [];
  const kills: { atSeconds: number; kind: string }[] = [];
  let isThrottling = false;
  const throttling = async (on: boolean) => {
    isThrottling = on;
    const change = on ? "touch" : "rm -f";
    await kubectl(`exec -n storage deployment/storage -c proxy -- ${change} /tmp/throttle`);
  };
  for (;;) {
    const { items } = JSON.parse(
      await kubectl(`get job -n ${namespace} -o json -l ${selector(name)}`),
    );
    const { conditions = [], failed = 0 } = items[0].status;
    const ended = (conditions as { type: string; message?: string }[]).find(({ type }) =>
      /^(Complete|Failed)$/.test(type),
    );
    if (ended !== undefined) {
      const seconds = elapsed();
      if (isThrottling) await throttling(false);
      if (ended.type === "Failed") throw new Error(`the Job failed: ${ended.message}`);
      return {
        name,
        failedPods: failed,
        kills,
        timeline,
        ...(await resultOf(cluster, name, seconds)),
      };
    }
    signal.throwIfAborted();
    if (timeline.length * pointSeconds < elapsed()) {
      timeline.push(await pointOf(cluster, name, Math.round(elapsed()), isThrottling));
    }
    const throttles = elapsed() > throttle.fromSeconds && elapsed() < throttle.toSeconds;
    if (disturbs && throttles !== isThrottling) await throttling(throttles);
    const isDue = kills.length < maxKills && (kills.length + 1) * killSeconds < elapsed();
    if (disturbs && isDue) {
      const kind = await kill(cluster, name, kills.length);
      kills.push({ atSeconds: Math.round(elapsed()), kind });
    }
    await sleep(1_000, undefined, { signal });
  }
}

const selector = (name: string) => `app.kubernetes.io/instance=${name}`;

interface Pod {
  readonly metadata: { readonly name: string; readonly uid: string };
}

async function runningPods({ kubectl }: LabCluster, name: string): Promise<readonly Pod[]> {
  const filter = `-l ${selector(name)} --field-selector=status.phase=Running`;
  return JSON.parse(await kubectl(`get pods -n ${namespace} ${filter} -o json`)).items;
}

async function pointOf(
  cluster: LabCluster,
  name: string,
  atSeconds: number,
  isThrottling: boolean,
): Promise<Point> {
  const pods = await runningPods(cluster, name);
  const path = `/api/v1/nodes/${cluster.node}/proxy/stats/summary`;
  const stats: { podRef: { uid: string }; memory?: { workingSetBytes?: number } }[] = JSON.parse(
    await cluster.kubectl(`get --raw ${path}`),
  ).pods;
  const memoryMiB = pods.map(({ metadata: { uid } }) => {
    const { memory } = stats.find(({ podRef }) => podRef.uid === uid) ?? {};
    return Math.round((memory?.workingSetBytes ?? 0) / 2 ** 20);
  });
  const point = { atSeconds, runningPods: pods.length, memoryMiB };
  if (isThrottling) return point;
  const { workers } = await statusOf(name);
  return { ...point, images: workers.reduce((sum, worker) => sum + worker.images, 0) };
}

async function statusOf(name: string): Promise<JobStatus> {
  const store = await openStore(`s3://vectors/${name}`);
  return jobStatus(store, await readJob(store), defaultStaleSeconds);
}

/** Kills a running pod: in turn as a preemption does, without grace, and by SIGKILL to its processes. */
async function kill(cluster: LabCluster, name: string, turn: number): Promise<string> {
  const pods = await runningPods(cluster, name);
  const pod = pods[turn % Math.max(1, pods.length)];
  if (pod === undefined) return "none, because no pod was running";
  const { name: podName, uid } = pod.metadata;
  if (turn % 2 === 0) {
    const body = {
      ...{ apiVersion: "policy/v1", kind: "Eviction", metadata: { name: podName, namespace } },
      deleteOptions: { gracePeriodSeconds: 0 },
    };
    const path = `/api/v1/namespaces/${namespace}/pods/${podName}/eviction`;
    await cluster.kubectl(`create --raw ${path} --filename -`, JSON.stringify(body));
    return "evicted";
  }
  // control groups have the pod's id with dashes or underscores
  const script = `for file in $(grep -l ${uid.replaceAll("-", ".")} /proc/[0-9]*/cgroup 2>/dev/null); do
  folder=\${file%/cgroup}
  if grep -q bulk $folder/cmdline; then kill -9 \${folder#/proc/} && echo killed; fi
done`;
  const killed = await run(`docker exec -i ${cluster.node} sh`, { input: script });
  return killed === "" ? "none, because the process had ended" : "SIGKILL";
}

async function resultOf({ kubectl }: LabCluster, name: string, seconds: number) {
  const { rows, errors, workers } = await statusOf(name);
  const log = await kubectl("logs -n storage deployment/storage -c proxy --tail=1");
  return {
    ...{ rows, errors, seconds: Math.round(seconds) },
    imagesPerSecond: Math.round(rows / seconds),
    peakRssMiB: Math.max(...workers.map((worker) => worker.peakRssMiB)),
    throttled: Number(log),
    loadAverage: loadavg()[0] ?? 0,
  };
}

/** Compares two tables of the same images, shard by shard and row by row. */
async function differences(one: string, other: string, images: number): Promise<readonly string[]> {
  const [a, b] = await Promise.all([one, other].map((name) => openStore(`s3://vectors/${name}`)));
  const job = await readJob(a!);
  const problems: string[] = [];
  const uris = new Set<string>();
  for (let shard = 0; shard < job.shards.length; shard++) {
    const [expected, got] = await Promise.all(
      [a!, b!].map(async (store) => readPart(await store.read(keys.part(shard))).rows),
    );
    const facts = ({ uri, etag, sha256, width, height }: (typeof expected & object)[number]) =>
      [uri, etag, sha256, width, height].join(" ");
    for (const [at, row] of expected!.entries()) {
      uris.add(row.uri);
      const match = got![at];
      if (match === undefined || facts(row) !== facts(match)) {
        problems.push(`shard ${shard}, row ${at}: ${facts(row)}, got ${match && facts(match)}`);
        continue;
      }
      const difference = Math.max(
        ...row.embedding.map((value, i) => Math.abs(value - match.embedding[i]!)),
      );
      if (!(difference <= maxDifference)) problems.push(`${row.uri} differs by ${difference}`);
    }
    if (got!.length > expected!.length) problems.push(`shard ${shard} has ${got!.length} rows`);
    const failures = await b!.read(keys.errors(shard)).then(readFailures, () => []);
    problems.push(...failures.map(({ uri, code }) => `${uri}: ${code}`));
  }
  if (uris.size !== images) problems.push(`${uris.size} of ${images} images have a row`);
  return problems.slice(0, 50);
}
