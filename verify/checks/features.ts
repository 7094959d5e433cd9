import type { CheckResult } from "../../bench/record/record.ts";
import { embedPaths, fingerprintHeader } from "../../contract/embed-api.ts";
import type { Modality } from "../../contract/model-spec.ts";
import {
  embeddingsResponse,
  modelsResponse,
  openAiErrorResponse,
} from "../../contract/openai-api.ts";
import { parseAs } from "../../contract/parse.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import { controlApis, requiredHeaders, tritonCommandOf } from "../../contract/triton-flags.ts";
import { compareWith, differenceLimit, judgeParity } from "../../target/reference/parity.ts";
import {
  type HttpResponse,
  jsonOf,
  openHttpClient,
  reason,
} from "../../target/requests/http-client.ts";
import { loadImages } from "../../target/requests/load-items.ts";
import {
  type EndpointTarget,
  endpointsOf,
  type TargetService,
} from "../../target/service/target-service.ts";
import { type Check, type CheckContext, itemsOf, ownKinds } from "./check.ts";
import { resultOf } from "./check-result.ts";

const timeoutMs = 30_000;

/** Part of a service that its settings may disable. */
interface Feature {
  readonly name: string;
  readonly kind: "embed" | "triton";
  /** Returns why the service does not have the feature; undefined if it has. */
  readonly off: (service: TargetService) => string | undefined;
  /** Uses the feature, and returns what it found. @throws {Error} one line, if the feature does not work */
  readonly use: (service: TargetService, url: string, context: CheckContext) => Promise<string>;
}

export const featuresCheck: Check = {
  name: "features",
  question: "Does each feature work that the settings enable?",
  only: "deployed",
  sendsRequests: true,
  kinds: ownKinds,
  async runService(service, context) {
    const { kind } = service.workload.service;
    const protocol = kind === "embed" ? "embed-http" : "oip-http";
    const { endpoint, url } =
      service.targets.find((target) => target.endpoint.protocol === protocol) ?? {};
    if (url === undefined) return [];
    const details = { endpoint: endpoint?.name };
    const results: CheckResult[] = [];
    for (const { name, off, use } of features.filter((feature) => feature.kind === kind)) {
      const report = (outcome: CheckResult["outcome"], text: string) =>
        results.push(resultOf(service, "features", outcome, `${name}: ${text}`, details));
      const why = off(service);
      if (why !== undefined) {
        report("skip", why);
        continue;
      }
      await use(service, url, context).then(
        (found) => report("pass", found),
        (error) => report("fail", reason(error)),
      );
    }
    return results;
  },
};

/** Origins in the declared variables of a container or pod. */
function imageHosts({ workload }: TargetService): readonly string[] {
  return serverEnv.shape.IMAGE_URL_HOSTS.parse(workload.env.IMAGE_URL_HOSTS);
}

/** Control APIs that the server must close, by the path of a request that changes nothing. */
const controlRequests: Readonly<Record<(typeof controlApis)[number], readonly [string, string]>> = {
  "shared-memory": ["GET", "/v2/systemsharedmemory/status"],
  trace: ["GET", "/v2/trace/setting"],
  logging: ["GET", "/v2/logging"],
  "model-repository": ["POST", "/v2/repository/models/no_such_model/load"],
};

function restrictedApis({ workload }: TargetService): readonly (typeof controlApis)[number][] {
  const flag = "http-restricted-api";
  const values = tritonCommandOf(workload.command).flatMap((word) =>
    word.startsWith(`--${flag}=`) ? [word.slice(flag.length + 3)] : [],
  );
  const headers = requiredHeaders({ [flag]: values, "grpc-restricted-protocol": [] }, flag);
  return controlApis.filter((api) => headers[api] !== undefined);
}

/** Features that settings may disable. To add one, add a row and a test in which the feature is broken. */
const features: readonly Feature[] = [
  { name: "/v1/embeddings", kind: "embed", off: () => undefined, use: useOpenAi },
  {
    name: "API key",
    kind: "embed",
    off: ({ apiKey }) => (apiKey === undefined ? "off: the service requires no key" : undefined),
    use: useWithoutKey,
  },
  {
    name: "image URLs",
    kind: "embed",
    off: (service) =>
      imageHosts(service).length === 0
        ? "off: IMAGE_URL_HOSTS lists no host"
        : endpointsOf(service).length === 0
          ? "off: no model embeds images"
          : undefined,
    use: useImageUrls,
  },
  {
    name: "restricted control APIs",
    kind: "triton",
    off: (service) =>
      restrictedApis(service).length === 0 ? "off: the server restricts none" : undefined,
    use: useControlApis,
  },
];

/** Sends a JSON body to OpenAI's route. */
function postEmbeddings({ http }: TargetService, url: string, body: object) {
  return http.send(`${url}${embedPaths.openAiEmbeddings}`, {
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    timeoutMs,
  });
}

async function useOpenAi(
  service: TargetService,
  url: string,
  context: CheckContext,
): Promise<string> {
  const listed = await service.http.send(`${url}${embedPaths.openAiModels}`, { timeoutMs });
  requireOk(`GET ${embedPaths.openAiModels}`, listed);
  const { data: models } = parseAs(modelsResponse, jsonOf(listed), embedPaths.openAiModels);
  const found: string[] = [];
  for (const modality of ["image", "text"] as const) {
    for (const target of endpointsOf(service, modality)) {
      const { fingerprints } = models.find(({ id }) => id === target.spec.name) ?? {};
      if (fingerprints === undefined) {
        throw new Error(`GET ${embedPaths.openAiModels} must list ${target.spec.name}`);
      }
      found.push(await useModel(service, target, context, fingerprints[modality]));
    }
  }
  return found.join("; ");
}

async function useModel(
  service: TargetService,
  target: EndpointTarget,
  context: CheckContext,
  fingerprint: string | undefined,
): Promise<string> {
  const { spec, modality, url, endpointName } = target;
  const [item] = itemsOf(context, target, 1);
  const body = { model: spec.name, encoding_format: "float", input: inputOf(item!, modality) };
  const response = await postEmbeddings(service, url, body);
  const label = `${modality} of ${spec.name}`;
  requireOk(label, response);
  const [first] = parseAs(embeddingsResponse, jsonOf(response), label).data;
  const vector = Float32Array.from(first!.embedding as readonly number[]);
  const { passed, message } = judgeParity(
    [compareWith(item!, vector, label)],
    differenceLimit(context.target, endpointName),
  );
  if (!passed) throw new Error(message);
  const stated = response.headers[fingerprintHeader];
  const expected = fingerprint && `${modality}=${fingerprint}`;
  if (stated !== expected) {
    throw new Error(
      `${label}: the header ${fingerprintHeader} must be ${expected ?? "absent"} as in ${embedPaths.openAiModels}, got ${stated ?? "none"}`,
    );
  }
  return `${label}, fingerprint ${fingerprint?.slice(0, 12) ?? "not stated"}`;
}

function inputOf(item: ReturnType<typeof itemsOf>[number], modality: Modality) {
  if (modality === "text") return { text: item.name };
  const [image] = loadImages([item]);
  return { image: Buffer.from(image!.bytes).toString("base64") };
}

function requireOk(label: string, response: HttpResponse): void {
  if (response.status === 200) return;
  throw new Error(`${label} must get 200, got ${response.status}: ${messageOf(response)}`);
}

function messageOf(response: HttpResponse): string {
  const parsed = openAiErrorResponse.safeParse(jsonOf(response));
  return parsed.success ? parsed.data.error.message : response.body.toString().slice(0, 80);
}

async function useWithoutKey(_service: TargetService, url: string): Promise<string> {
  const anonymous = openHttpClient(1);
  try {
    const paths = [embedPaths.openAiModels, embedPaths.metrics];
    for (const path of paths) {
      const { status } = await anonymous.send(`${url}${path}`, { timeoutMs });
      if (status !== 401) throw new Error(`GET ${path} without a key must get 401, got ${status}`);
    }
    return `${paths.join(", ")} get 401 without a key`;
  } finally {
    await anonymous.close();
  }
}

/** The address is no image on any host: that the host responds shows that the server can download. */
async function useImageUrls(service: TargetService, url: string): Promise<string> {
  const [target] = endpointsOf(service);
  const request = (origin: string) =>
    postEmbeddings(service, url, {
      model: target!.spec.name,
      input: { image: `${origin}/clipstack-verify` },
    });
  const hosts = imageHosts(service);
  for (const origin of hosts) {
    const response = await request(origin);
    const message = messageOf(response);
    const failed = /cannot be downloaded: (?!its server responds )/.test(message);
    if (response.status >= 500 || failed) {
      throw new Error(
        `an image of ${origin} must be requested, got ${response.status}: ${message}`,
      );
    }
  }
  // a name that exists nowhere (RFC 2606)
  const other = await request("https://not-allowed.invalid");
  const message = messageOf(other);
  if (other.status !== 400 || !/does not allow/.test(message)) {
    throw new Error(`a URL of another host must be rejected, got ${other.status}: ${message}`);
  }
  return `${hosts.join(", ")} respond, another host is rejected`;
}

async function useControlApis(service: TargetService, url: string): Promise<string> {
  const apis = restrictedApis(service);
  for (const api of apis) {
    const [method, path] = controlRequests[api];
    const { status } = await service.http.send(`${url}${path}`, {
      method: method as "GET" | "POST",
      ...(method === "POST" && { headers: { "content-type": "application/json" }, body: "{}" }),
      timeoutMs,
    });
    if (status !== 403) throw new Error(`${method} ${path} must get 403, got ${status}`);
  }
  return `${apis.join(", ")} get 403`;
}
