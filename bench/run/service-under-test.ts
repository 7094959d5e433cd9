import type { RunningInstance } from "../../artefact/simulation.ts";
import type { Target } from "../../artefact/simulation-types.ts";
import type { Workload } from "../../artefact/workload.ts";
import { describe } from "../../artefact/workload.ts";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import type { Transport } from "../../client/triton/transport.ts";
import type { EndpointName } from "../../contract/environment.ts";
import type { CheckResult } from "../record/record.ts";
import { type EmbedEncoding, embedBy, embedEncodings } from "./embed-requests.ts";
import { type HttpClient, openHttpClient, reason } from "./http-client.ts";
import { inferRows, stack } from "./infer.ts";
import type { ReferenceImage } from "./reference.ts";

/** Service of a running environment, with its connections for checks. */
export interface ServiceUnderTest {
  readonly environment: string;
  readonly workload: Workload;
  readonly instances: readonly RunningInstance[];
  readonly targets: readonly Target[];
  readonly http: HttpClient;
  /** API key required by the embed API; absent in a simulation, whose servers have none. */
  readonly apiKey?: string;
  /** Open Inference Protocol transport to a target; opened once, closed by {@link closeTransports}. */
  transport(target: Target, encoding?: "json" | "binary"): Transport;
  closeTransports(): Promise<void>;
}

export function openService(
  environment: string,
  workload: Workload,
  instances: readonly RunningInstance[],
  targets: readonly Target[],
  apiKey?: string,
): ServiceUnderTest {
  const origin = targets.find(({ endpoint }) => endpoint.protocol === "embed-http")?.url;
  const bearer = apiKey === undefined || origin === undefined ? undefined : { origin, key: apiKey };
  const transports = new Map<string, Transport>();
  return {
    environment,
    workload,
    instances,
    targets,
    http: openHttpClient(undefined, bearer),
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
    async closeTransports() {
      await Promise.all([...transports.values()].map((transport) => transport.close()));
      transports.clear();
    },
  };
}

/** Reachable target that returns embeddings. */
export type EndpointTarget = Target & { readonly endpointName: EndpointName; readonly url: string };

export function endpointsOf(service: ServiceUnderTest): readonly EndpointTarget[] {
  return service.targets.flatMap((target) => {
    const { endpoint, url } = target;
    return endpoint.name === undefined || url === undefined
      ? []
      : [{ ...target, endpointName: endpoint.name, url }];
  });
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
 * Sends one request for the embeddings of some images.
 *
 * @param encoding - Defaults to the raw body (one image) or a multipart form for the embed API, and to binary for Triton.
 * @returns One vector of 512 values per image; not normalised by Triton.
 * @throws {Error} with a one-line message on any other response.
 */
export async function embeddingsOf(
  service: ServiceUnderTest,
  target: EndpointTarget,
  images: readonly ReferenceImage[],
  encoding?: RequestEncoding,
): Promise<readonly Float32Array[]> {
  if (target.endpoint.protocol === "embed-http") {
    const defaultEncoding = images.length === 1 ? "raw" : "multipart";
    return embedBy(
      service.http,
      target.url,
      (encoding as EmbedEncoding | undefined) ?? defaultEncoding,
      images,
    );
  }
  const transport = service.transport(target, encoding === "json" ? "json" : "binary");
  const { model } = service.workload.service;
  return inferRows(transport, model, stack(images), images.length, timeoutMs);
}

type ResultDetails = Partial<Pick<CheckResult, "endpoint" | "measured" | "images">>;

/** Finding of a check on one endpoint. */
export interface EndpointFinding extends Omit<ResultDetails, "endpoint"> {
  /** @default "pass" */
  readonly outcome?: "pass" | "fail";
  readonly message: string;
}

/** Runs a check on each endpoint of a service. An endpoint whose check throws fails with the error message. */
export async function checkEachEndpoint(
  service: ServiceUnderTest,
  id: string,
  check: (target: EndpointTarget) => Promise<EndpointFinding>,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of endpointsOf(service)) {
    const failed = (error: unknown) => ({ outcome: "fail", message: reason(error) }) as const;
    const { outcome = "pass", message, ...more } = await check(target).catch(failed);
    results.push(
      resultOf(service, id, outcome, message, { endpoint: target.endpointName, ...more }),
    );
  }
  return results;
}

/** Check result with the common fields of the service. */
export function resultOf(
  service: ServiceUnderTest,
  id: string,
  outcome: CheckResult["outcome"],
  message: string,
  more: ResultDetails = {},
): CheckResult {
  return {
    id,
    environment: service.environment,
    service: service.workload.service.name,
    resource: describe(service.workload),
    outcome,
    message,
    measured: {},
    ...more,
  };
}
