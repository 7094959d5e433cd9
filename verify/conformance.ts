import { setMaxListeners } from "node:events";
import { openSender, type Sender } from "../bench/measure/bench-parity.ts";
import type { CheckResult, VerifyRecord } from "../bench/record/record.ts";
import type { BenchEndpoint } from "../contract/bench-endpoint.ts";
import type { Modality, ModelSpec } from "../contract/model-spec.ts";
import type { OpenTarget } from "../target/open/open-target.ts";
import { openServer, type ServerSource } from "../target/open/server.ts";
import { compareWith, judgeParity, parityLimits } from "../target/reference/parity.ts";
import type { ReferenceItem } from "../target/reference/reference.ts";
import { References } from "../target/reference/references.ts";
import { longText } from "../target/reference/text-reference.ts";
import { type HttpClient, jsonOf, openHttpClient, reason } from "../target/requests/http-client.ts";
import { prepareRequests } from "../target/requests/prepare.ts";
import { protocolOf } from "../target/requests/server-protocol.ts";
import type { TargetEndpoint } from "../target/requests/target-endpoint.ts";
import { cosine, norm } from "../target/stats/statistics.ts";
import { type CheckedEnvironment, type CheckOptions, CheckRun, recordOf } from "./check-run.ts";
import { malformedBodies } from "./malformed-bodies.ts";

export interface ConformanceOptions extends CheckOptions {
  readonly servers: readonly ServerSource[];
  readonly spec: ModelSpec;
  /** Towers that every server must have. */
  readonly modalities: readonly Modality[];
}

/** Server under test with one tower, and what it must return. */
interface Subject {
  readonly target: TargetEndpoint;
  readonly endpoint: BenchEndpoint;
  readonly items: readonly ReferenceItem[];
  /** Text that servers may truncate or reject. */
  readonly longText: ReferenceItem | undefined;
  readonly sender: Sender;
  /** The server's own embedding of each item, requested alone; batches are compared with them. */
  readonly singles: Promise<readonly ReferenceItem[]>;
  readonly http: HttpClient;
}

type Finding = Pick<CheckResult, "message"> &
  Partial<Pick<CheckResult, "measured" | "images" | "outcome">>;

/** Checks in their order. A check that throws fails with the message of the error. */
const checks: Readonly<Record<string, (subject: Subject) => Promise<Finding>>> = {
  parity: checkParity,
  norm: checkNorm,
  batches: checkBatches,
  errors: checkErrors,
  limits: checkLimits,
};

/** Checks embedding servers of any kind against the model in this process: embeddings, norm, batches and their order, errors, limits. */
export async function verifyServers(options: ConformanceOptions): Promise<VerifyRecord> {
  const { servers, spec, modalities, signal } = options;
  setMaxListeners(2 * burst, signal);
  const startedAt = new Date();
  const onPhase = (text: string) => options.onEvent({ kind: "phase", text });
  const models = await Promise.all(
    modalities.map((modality) => options.chooseModel(spec, modality, undefined, "")),
  );
  const references = new References(onPhase);
  const { reference, textReference } = await references.forModels(models);
  const checked: CheckedEnvironment[] = [];
  for (const server of servers) {
    const environment = new URL(server.url).host;
    const run = new CheckRun(environment, options);
    const opening = modalities.map((modality) =>
      openServer(server, { tower: { spec, modality }, signal, onPhase }),
    );
    const opened = await Promise.allSettled(opening);
    signal.throwIfAborted();
    const failures = opened.flatMap((tower) =>
      tower.status === "rejected" ? [reason(tower.reason)] : [],
    );
    // both towers of an unreachable server fail for the same reason
    for (const message of new Set(failures)) {
      const service = "server";
      const resource = server.url;
      const id = "connection";
      run.report([{ id, environment, service, resource, outcome: "fail", message, measured: {} }]);
    }
    for (const [i, tower] of opened.entries()) {
      if (tower.status === "rejected") continue;
      const items = (modalities[i] === "text" ? textReference : reference).get(spec.name) ?? [];
      await checkTower(tower.value, items, run, options);
    }
    checked.push({ models, run });
  }
  return recordOf(startedAt, "addresses", references, checked, options);
}

async function checkTower(
  { targets: [target], subject: { servers } }: OpenTarget,
  references: readonly ReferenceItem[],
  run: CheckRun,
  { signal }: CheckOptions,
): Promise<void> {
  if (target === undefined) return;
  for (const { name, version } of servers) run.servers.add(`${name} ${version}`);
  const [payload = "jpeg"] = target.payloads;
  const endpoint = { endpoint: target.endpoint, payload, serialization: "binary" } as const;
  const sender = openSender(target, signal);
  const http = openHttpClient();
  const own = {
    ...{ target, endpoint, sender, http },
    items: references.filter(({ name }) => name !== longText),
    longText: references.find(({ name }) => name === longText),
  };
  const singles = embedEach(own);
  singles.catch(() => {});
  try {
    for (const [id, check] of Object.entries(checks)) {
      run.phase(`${id}: ${target.modality}s`);
      const failed = (error: unknown): Finding => ({ outcome: "fail", message: reason(error) });
      const found = await check({ ...own, singles }).catch(failed);
      signal.throwIfAborted();
      run.report([
        {
          ...{ id, environment: target.environment, service: `${target.modality}s` },
          ...{ endpoint: target.endpoint, resource: target.url, outcome: "pass", measured: {} },
          ...found,
        },
      ]);
    }
  } finally {
    await Promise.all([sender.close(), http.close()]);
  }
}

/** Embeddings of the first `count` items, repeated as needed, in one request. */
async function embed(
  { target, endpoint, items, sender }: Pick<Subject, "target" | "endpoint" | "items" | "sender">,
  count: number,
  first = 0,
): Promise<readonly Float32Array[]> {
  const from = [...items.slice(first), ...items.slice(0, first)];
  const prepared = await prepareRequests(target, endpoint, from, count);
  const [request] = prepared.requests;
  return request === undefined ? [] : sender.send(prepared, request, count);
}

async function embedEach(subject: Omit<Subject, "singles">): Promise<readonly ReferenceItem[]> {
  const rows: ReferenceItem[] = [];
  for (const [i, item] of subject.items.entries()) {
    const [embedding] = await embed(subject, 1, i);
    rows.push({ ...item, embedding: embedding ?? new Float32Array() });
  }
  return rows;
}

/** Only directions are compared: other servers decode, resize and multiply in other ways. */
async function checkParity({ items, singles }: Subject): Promise<Finding> {
  const found = await singles;
  const images = items.map((item, i) => compareWith(item, found[i]?.embedding));
  const { minCosine, maxRelativeDifference, passed, message } = judgeParity(images, undefined);
  const measured = { cosine: minCosine, relativeDifference: maxRelativeDifference };
  return { outcome: passed ? "pass" : "fail", message, measured, images };
}

const normTolerance = 1e-3;

async function checkNorm(subject: Subject): Promise<Finding> {
  if (protocolOf(subject.target.endpoint) === undefined) {
    return {
      outcome: "skip",
      message: "the Open Inference Protocol returns the output of the model",
    };
  }
  const [{ embedding: vector } = { embedding: new Float32Array() }] = await subject.singles;
  const { width } = subject.target.spec.embedding;
  const length = norm(vector);
  const passed = vector.length === width && Math.abs(length - 1) <= normTolerance;
  return {
    outcome: passed ? "pass" : "fail",
    message: `${vector.length} values, L2 norm ${length.toFixed(4)}${passed ? "" : `; must be ${width} values, 1 ± ${normTolerance}`}`,
    measured: { norm: length },
  };
}

/** Row i of a batch must be the embedding that the server returns for item i alone, and nearer to it than to each other item. */
async function checkBatches(subject: Subject): Promise<Finding> {
  const items = await subject.singles;
  const { maximum } = subject.target.spec.batching;
  const sizes = [...new Set([2, 3, 8, maximum].map((size) => Math.min(size, maximum)))];
  for (const size of sizes) {
    const rows = await embed(subject, size);
    for (const [i, row] of rows.entries()) {
      const similarities = items.map(({ embedding }) => cosine(row, embedding));
      const own = similarities[i % items.length] ?? 0;
      if (own >= parityLimits.cosineAtLeast && own >= Math.max(...similarities) - 1e-4) continue;
      const nearest = items[similarities.indexOf(Math.max(...similarities))]?.name;
      throw new Error(
        `batch of ${size}: row ${i} must be the embedding of ${items[i % items.length]?.name}, got cosine ${own.toFixed(6)}, nearest to ${nearest}`,
      );
    }
  }
  return { message: `batches of ${sizes.join(", ")}` };
}

/**
 * Malformed requests must get a status from 400 to 499 and a JSON object, and the server must keep serving. The Open Inference Protocol
 * only requires an error status: Triton servers answer 500 to broken JSON.
 */
async function checkErrors(subject: Subject): Promise<Finding> {
  const { target, http, endpoint, items } = subject;
  const prepared = await prepareRequests(target, endpoint, items, 1);
  const malformed = malformedBodies(target);
  const last = protocolOf(target.endpoint) === undefined ? 500 : 499;
  const wrong: string[] = [];
  for (const { name, body, path = prepared.path } of malformed) {
    const response = await http.send(`${target.url}${path}`, {
      headers: { "content-type": "application/json", ...prepared.headers },
      body,
      timeoutMs: 60_000,
    });
    const isObject = typeof (jsonOf(response) ?? undefined) === "object";
    if (response.status < 400 || response.status > last) {
      wrong.push(`${name}: must get a status from 400 to ${last}, got ${response.status}`);
    } else if (!isObject) wrong.push(`${name}: ${response.status} must have a JSON object`);
  }
  await embed(subject, 1);
  return {
    outcome: wrong.length === 0 ? "pass" : "fail",
    message:
      wrong.join("; ") ||
      `${malformed.length} malformed requests: ${malformed.map(({ name }) => name).join(", ")}`,
    measured: { requests: malformed.length, wrong: wrong.length },
  };
}

const burst = 64;

/**
 * Beyond its limits a server rejects: a batch above the maximum of the model, a text beyond its context length and each request of a burst
 * are answered correctly, or with a status from 400 to 499 or 503.
 */
async function checkLimits(subject: Subject): Promise<Finding> {
  const rejected = (error: unknown) => {
    if (/^status (4\d\d|503)\b/.test(reason(error))) return undefined;
    throw error;
  };
  const items = await subject.singles;
  const size = subject.target.spec.batching.maximum + 1;
  const large = await embed(subject, size).catch(rejected);
  const answers = await Promise.all(
    Array.from({ length: burst }, async (_, i) => {
      const rows = await embed(subject, 1, i % items.length).catch(rejected);
      return rows && compareWith(items[i % items.length]!, rows[0]);
    }),
  );
  const served = answers.filter((answer) => answer !== undefined);
  const findings = [
    `batch of ${size} ${large === undefined ? "rejected" : "accepted"}`,
    `${served.length} of ${burst} concurrent requests answered, ${burst - served.length} rejected`,
  ];
  const { longText: long } = subject;
  if (long !== undefined) {
    const rows = await embed({ ...subject, items: [long] }, 1).catch(rejected);
    if (rows !== undefined) served.push(compareWith(long, rows[0], "the long text"));
    findings.push(
      `a text of ${long.name.length} characters ${rows === undefined ? "rejected" : "accepted"}`,
    );
  }
  const text = findings.join("; ");
  const { passed, message } = judgeParity(served, undefined);
  return { outcome: passed ? "pass" : "fail", message: passed ? text : `${text}; ${message}` };
}
