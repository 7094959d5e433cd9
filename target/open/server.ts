import { z } from "zod";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { type HttpClient, jsonOf, openHttpClient, reason } from "../requests/http-client.ts";
import { protocolOf } from "../requests/server-protocol.ts";
import type { TargetEndpoint } from "../requests/target-endpoint.ts";
import type { OpenOptions } from "./open-services.ts";
import type { OpenTarget } from "./open-target.ts";

const timeoutMs = 10_000;

const modelList = z.object({ data: z.array(z.object({ id: z.string() })).min(1) });

/**
 * Protocols of embedding servers, in the order of detection: the endpoint, a route that only its servers answer, and the schema of its
 * response, which has the names of the models.
 */
const protocols = {
  v2: {
    endpoint: "onnx-http",
    route: oipPaths.serverMetadata,
    // its models have the names of the spec
    response: z
      .object({ name: z.string(), version: z.string() })
      .transform(({ name, version }) => [`${name} ${version}`]),
  },
  tei: {
    endpoint: "tei-http",
    route: "/info",
    response: z
      .object({ model_id: z.string(), max_client_batch_size: z.number() })
      .transform(({ model_id }) => [model_id]),
  },
  infinity: {
    endpoint: "infinity-http",
    route: "/models",
    response: modelList.transform(({ data }) => data.map(({ id }) => id)),
  },
  openai: {
    endpoint: "openai-http",
    route: "/v1/models",
    response: modelList.transform(({ data }) => data.map(({ id }) => id)),
  },
} as const;
export type ProtocolName = keyof typeof protocols;
export const protocolNames = Object.keys(protocols) as readonly ProtocolName[];

/** An embedding server of any kind, at an address. */
export interface ServerSource {
  readonly kind: "server";
  /** `http://host:port` or `https://host:port`. */
  readonly url: string;
  /** @default - detected from the routes that it answers */
  readonly protocol?: ProtocolName;
  /** Bearer token. @default - none */
  readonly apiKey?: string;
}

/** Detects the protocol of a server and the models that it lists. */
export async function detectServer(
  http: HttpClient,
  { url, protocol, apiKey }: ServerSource,
): Promise<{ readonly protocol: ProtocolName; readonly models: readonly string[] }> {
  const headers: Record<string, string> =
    apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  const failures: string[] = [];
  for (const name of protocol === undefined ? protocolNames : [protocol]) {
    const { route, response } = protocols[name];
    try {
      const got = await http.send(`${url}${route}`, { headers, timeoutMs });
      const parsed = response.safeParse(jsonOf(got));
      if (got.status === 200 && parsed.success) return { protocol: name, models: parsed.data };
      failures.push(`${route} ${got.status}${got.status === 200 ? " with other content" : ""}`);
    } catch (error) {
      throw new UserError(`--url ${url} must be the address of a running server: ${reason(error)}`);
    }
  }
  throw new UserError(
    `--url ${url} must answer ${protocol === undefined ? `a route of ${protocolNames.join(", ")}` : `as a server of ${protocol}`}, got ${failures.join(", ")}`,
  );
}

/** Opens a server of any kind for one tower. */
export async function openServer(
  source: ServerSource,
  { tower: { spec, modality }, onPhase }: OpenOptions,
): Promise<OpenTarget> {
  const { url, apiKey } = source;
  onPhase(`connecting to ${url}`);
  const http = openHttpClient();
  try {
    const { protocol, models } = await detectServer(http, source);
    const { endpoint } = protocols[protocol];
    const known = protocolOf(endpoint);
    if (known?.modalities.includes(modality) === false) {
      throw new UserError(`--url ${url}: servers of ${protocol} embed no ${modality}s`);
    }
    const target: TargetEndpoint = {
      environment: new URL(url).host,
      service: protocol,
      ...{ endpoint, url, spec, modality, apiKey },
      model: known === undefined ? tritonName(spec, modality) : modelName(models, spec),
      payloads: [modality === "text" ? "text" : known === undefined ? "fp32" : "jpeg"],
      metrics: [],
      pids: [],
    };
    return {
      target: "addresses",
      targets: [target],
      subject: {
        environments: [],
        servers: [
          { service: target.environment, name: protocol, version: models[0] ?? target.model },
        ],
      },
      notes: [`${url} was measured through the protocol ${protocol}, model ${target.model}.`],
      close: async () => {},
    };
  } finally {
    await http.close();
  }
}

const tritonName = (spec: ModelSpec, modality: Modality) =>
  tritonModelName(spec, fp32Kinds[modality]);

/** The model's own name if the server lists it, otherwise the first listed one. */
const modelName = (models: readonly string[], { name }: ModelSpec) =>
  models.includes(name) ? name : (models[0] ?? name);
