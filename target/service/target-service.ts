import type { RunningInstance } from "../../artefact/simulation.ts";
import type { Target } from "../../artefact/simulation-types.ts";
import type { Workload } from "../../artefact/workload.ts";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import type { Transport } from "../../client/triton/transport.ts";
import { type EndpointName, requestedModel } from "../../contract/environment.ts";
import { textTowerOf } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec, ModelTower } from "../../contract/model-spec.ts";
import { tokenTensor } from "../../inference/session/token-tensor.ts";
import { metricsSource, readMetrics } from "../readings/instance-metrics.ts";
import type { Metrics } from "../readings/prometheus.ts";
import {
  type EmbedEncoding,
  embedBy,
  embedEncodings,
  embedTextBy,
} from "../requests/embed-requests.ts";
import { type HttpClient, openHttpClient } from "../requests/http-client.ts";
import { inferRows, inferTensor, stack } from "../requests/infer.ts";
import { isLoadText, type LoadItem, type LoadText, loadImages } from "../requests/load-items.ts";

/** Service of a running environment, with its connections. */
export interface TargetService {
  readonly environment: string;
  readonly workload: Workload;
  /** Models that the service serves, the default first. */
  readonly models: readonly ModelSpec[];
  readonly instances: readonly RunningInstance[];
  readonly targets: readonly Target[];
  readonly http: HttpClient;
  /** API key required by the embed API; absent in a simulation, whose servers have none. */
  readonly apiKey?: string;
  /** Open Inference Protocol transport to a target; opened once. */
  transport(target: Target, encoding?: "json" | "binary"): Transport;
  closeTransports(): Promise<void>;
  /** Closes all of its connections. */
  close(): Promise<void>;
}

/** Services of an environment, for as long as they are open. */
export interface RunningServices {
  readonly services: readonly TargetService[];
  /** Closes the connections, and stops what was started. */
  close(): Promise<void>;
}

/** Returns the result of `open`, which uses running services; closes them if it fails. */
export async function orClose<Result>(
  running: RunningServices,
  open: () => Promise<Result>,
): Promise<Result> {
  try {
    return await open();
  } catch (error) {
    await running.close();
    throw error;
  }
}

/** Opens the endpoints of a running service for requests.
 *
 * @param models - Models of the environment.
 */
export function openService(
  environment: string,
  workload: Workload,
  models: readonly ModelSpec[],
  instances: readonly RunningInstance[],
  targets: readonly Target[],
  apiKey?: string,
): TargetService {
  const origin = targets.find(({ endpoint }) => endpoint.protocol === "embed-http")?.url;
  const bearer = apiKey === undefined || origin === undefined ? undefined : { origin, key: apiKey };
  const transports = new Map<string, Transport>();
  const http = openHttpClient(undefined, bearer);
  const closeTransports = async (): Promise<void> => {
    await Promise.all([...transports.values()].map((transport) => transport.close()));
    transports.clear();
  };
  return {
    environment,
    workload,
    models: workload.service.models.flatMap(
      (name) => models.find((model) => model.name === name) ?? [],
    ),
    instances,
    targets,
    http,
    apiKey,
    transport(target, encoding = "binary") {
      const url = target.url ?? "";
      const key = `${encoding} ${url}`;
      const known = transports.get(key);
      if (known !== undefined) return known;
      const opened =
        target.endpoint.protocol === "oip-grpc"
          ? openGrpcTransport({ target: url })
          : openHttpTransport({ url, encoding });
      transports.set(key, opened);
      return opened;
    },
    closeTransports,
    async close() {
      await Promise.all([closeTransports(), http.close()]);
    },
  };
}

/** Reachable target that returns embeddings of a model. */
export type EndpointTarget = Target &
  ServedModel & { readonly endpointName: EndpointName; readonly url: string };

/** Returns the endpoints of a service, once for each model that has a tower of the modality. */
export function endpointsOf(
  service: TargetService,
  modality: Modality = "image",
): readonly EndpointTarget[] {
  return service.targets.flatMap((target) => {
    const { endpoint, url } = target;
    const { name } = endpoint;
    if (name === undefined || url === undefined) return [];
    return servedModels(service, modality).map((model) => ({
      ...target,
      endpointName: name,
      url,
      ...model,
    }));
  });
}

/** Returns the endpoints of a service, once for each model: with the image tower, or the text tower if the model has no other. */
export function firstTowersOf(service: TargetService): readonly EndpointTarget[] {
  const textOnly = endpointsOf(service, "text").filter(({ spec }) => !spec.towers.image);
  return [...endpointsOf(service), ...textOnly];
}

/** Tower that a service serves. */
export interface ServedModel extends ModelTower {
  /** Name of the tower in requests to a Triton server. For an image tower, the model with FP32 input. */
  readonly model: string;
}

export function servedTowers(service: TargetService): readonly ServedModel[] {
  return [...servedModels(service, "image"), ...servedModels(service, "text")];
}

export function servedModels(
  { models, workload }: TargetService,
  modality: Modality = "image",
): readonly ServedModel[] {
  // a baseline has the image towers only
  if (workload.service.kind === "baseline" && modality === "text") return [];
  return models
    .filter(({ towers }) => towers[modality] !== undefined)
    .map((spec) => ({
      spec,
      modality,
      model: requestedModel(workload.service, spec.name, modality),
    }));
}

/** Encoding of a request for embeddings: of images for the embed API, of tensors for Triton. */
export type RequestEncoding = EmbedEncoding | "binary" | "json";

/** Request encodings that a target accepts. */
export function encodingsOf({ endpoint }: EndpointTarget): readonly RequestEncoding[] {
  if (endpoint.protocol === "embed-http") return embedEncodings;
  return endpoint.protocol === "oip-http" ? ["binary", "json"] : ["binary"];
}

const timeoutMs = 120_000;

/**
 * Sends one request for the embeddings of some images, or of texts if the target is a text tower.
 *
 * @param encoding - Of images. Defaults to the raw body (one image) or a multipart form for the embed API, and to binary for Triton.
 * @returns One vector per image or text; not normalised by Triton.
 * @throws {Error} with a one-line message on any other response.
 */
export async function embeddingsOf(
  service: Pick<TargetService, "http" | "transport">,
  target: EndpointTarget,
  items: readonly LoadItem[],
  encoding?: RequestEncoding,
): Promise<readonly Float32Array[]> {
  if (target.modality === "text") return textEmbeddings(service, target, items.filter(isLoadText));
  const images = loadImages(items);
  if (target.endpoint.protocol === "embed-http") {
    const defaultEncoding = images.length === 1 ? "raw" : "multipart";
    return embedBy(
      service.http,
      target.url,
      (encoding as EmbedEncoding | undefined) ?? defaultEncoding,
      images,
      target.spec,
    );
  }
  const transport = service.transport(target, encoding === "json" ? "json" : "binary");
  return inferRows(transport, target.model, target.spec, stack(images), images.length, timeoutMs);
}

async function textEmbeddings(
  { http, transport }: Pick<TargetService, "http" | "transport">,
  target: EndpointTarget,
  items: readonly LoadText[],
): Promise<readonly Float32Array[]> {
  const { spec } = target;
  if (target.endpoint.protocol === "embed-http") {
    const texts = items.map(({ text }) => text);
    return embedTextBy(http, target.url, texts, spec);
  }
  const ids = items.map((item) => item.ids);
  const input = tokenTensor(textTowerOf(spec), ids);
  return inferTensor(transport(target), target, input, timeoutMs);
}

/** Metrics of one local process. */
export function metricsOf(service: TargetService, running: RunningInstance): Promise<Metrics> {
  return readMetrics(service.http, metricsSource(running));
}
