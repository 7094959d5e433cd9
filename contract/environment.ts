import { z } from "zod";
import { declaredFacts } from "./gpus.ts";
import { type Modality, modelSpec } from "./model-spec.ts";
import { type ModelKind, tritonModelName } from "./triton-models.ts";

/**
 * Terraform output `environment`: the services of an environment as one JSON value. `bench`, `verify` and the client read it from
 * `cdk.tf.json` or `terraform output -json`, so it contains no value that only Terraform can resolve.
 */

export const environmentOutput = "environment";

/** Endpoints of the services of an environment. */
export const serviceEndpoints = [
  "embed-http",
  "onnx-http",
  "onnx-grpc",
  "trt-http",
  "trt-grpc",
  "pytorch-http",
] as const;
export type ServiceEndpoint = (typeof serviceEndpoints)[number];
/** Routes of other embedding servers: OpenAI's, those of Text Embeddings Inference, and infinity's. */
export const serverEndpoints = ["openai-http", "tei-http", "infinity-http"] as const;
export type ServerEndpoint = (typeof serverEndpoints)[number];

export const endpointNames = [...serviceEndpoints, ...serverEndpoints] as const;
/** Service and protocol that return embeddings. */
export type EndpointName = (typeof endpointNames)[number];

/** Returns whether an endpoint accepts image files by the embed API's `POST /embed`; the others accept tensors. */
export function hasEmbedApi(endpoint: EndpointName): boolean {
  return endpoint === "embed-http" || endpoint === "pytorch-http";
}

/** Returns whether an endpoint accepts image files: by the embed API, or by the routes of another embedding server. */
export function sendsImageFiles(endpoint: EndpointName): boolean {
  return hasEmbedApi(endpoint) || (serverEndpoints as readonly EndpointName[]).includes(endpoint);
}

/** Version of {@link environment}. */
export const environmentSchema = 4;

export const endpoint = z.strictObject({
  protocol: z.enum(["embed-http", "oip-http", "oip-grpc", "metrics"]),
  /**
   * `http://host:port` or `https://host:port`, or `host:port` for gRPC without TLS, without a path. A host `<Service>.<namespace>.svc` resolves only inside the cluster;
   * commands outside use `kubectl port-forward`.
   */
  url: z.string().min(1),
  /** Absent if the endpoint returns no embeddings. */
  name: z.enum(serviceEndpoints).optional(),
});
export type Endpoint = z.infer<typeof endpoint>;

/** Programs that serve Triton's protocol: NVIDIA's server, or the Triton emulator in the embed image. */
export const tritonServers = ["tritonserver", "emulator"] as const;
export type TritonServerKind = (typeof tritonServers)[number];

/** Model kinds of an image tower that a service may serve. Its text towers are `text-trt` with `trt`, otherwise `text`. */
export const servedKinds = [
  "fp32",
  "trt",
  "u8",
  "jpeg",
  "dali",
  "dali-trt",
] as const satisfies ModelKind[];
export type ServedKind = (typeof servedKinds)[number];

export const service = z.strictObject({
  /** Name of the service, which is the id of its construct in the stack: `embed`, `triton-onnx`, `triton-trt`, `triton-0`, `pytorch`, … */
  name: z.string().min(1),
  /** `baseline` is not part of clipstack: a service that its endpoints are compared with, by the embed API's routes for images. */
  kind: z.enum(["embed", "triton", "baseline"]),
  /** Backend that executes the model; `triton` is the embed server as gateway. */
  backend: z.enum(["onnxruntime", "tensorrt", "triton", "pytorch"]),
  /** Program that serves Triton's protocol; absent for `embed`. */
  server: z.enum(tritonServers).optional(),
  /** Names of the served models, which `models` of the environment describes. The first is the default. */
  models: z.array(z.string().min(1)).min(1),
  modelKind: z.enum(servedKinds),
  /** Model kind with which a Triton server accepts JPEG files and decodes them with DALI. A gateway that forwards JPEG files has it too; absent without DALI. */
  jpegKind: z.enum(["dali", "dali-trt"]).optional(),
  /** Triton servers on other hosts to which a gateway forwards, `host:port`; absent without any. */
  upstreams: z.array(z.string().min(1)).min(1).optional(),
  /** Authentication: `bearer` is `Authorization: Bearer …`. Absent without authentication. The key is never included. */
  authorization: z.enum(["bearer"]).optional(),
  /** Terraform addresses: the container, or the Deployment and the Service that leads to it. */
  resources: z.strictObject({
    container: z.string().optional(),
    deployment: z.string().optional(),
    service: z.string().optional(),
    /** `terraform_data` of a kind cluster. */
    cluster: z.string().optional(),
    /** `helm_release` of the chart, if the Deployment has no typed resource. */
    release: z.string().optional(),
  }),
  /** Name of the Deployment; absent for a container. */
  workload: z.string().min(1).optional(),
  endpoints: z.array(endpoint).min(1),
});
export type Service = z.infer<typeof service>;
export type ServiceKind = Service["kind"];

const currentFields = z.strictObject({
  /** Version of the format, incremented when the name or meaning of a field changes. */
  schema: z.literal(environmentSchema),
  name: z.string().min(1),
  /** Docker endpoint, or context of the kubeconfig, on which the services run. */
  where: z.string().min(1),
  /** Path of the kubeconfig with this context, as in the settings; absent for kubectl's default. */
  kubeconfig: z.string().min(1).optional(),
  /** Namespace of the services; absent on a Docker host. */
  namespace: z.string().min(1).optional(),
  accelerator: z.enum(["gpu", "cpu"]),
  /** GPUs; absent on the CPU. */
  gpu: z
    .strictObject({
      /** Key of the GPU catalogue, or the name of a declared GPU. */
      name: z.string(),
      /** Absent for a GPU of the catalogue. */
      declared: declaredFacts.optional(),
      count: z.int().min(1),
      vramMiB: z.int().min(1),
      /** What each service or pod has of a GPU, if not a whole one: a MIG profile, a MIG resource, or a time-sliced GPU. */
      share: z.string().min(1).optional(),
      /** US dollars per hour for all GPUs of the environment, and the month of the price; a declared price has none. */
      usdPerHour: z.number().min(0),
      priceDate: z.string().optional(),
    })
    .optional(),
  /** Specs of all served models, without their sources. */
  models: z.array(modelSpec),
  services: z.array(service).min(1),
  /** Addresses of Prometheus and Grafana on the host; absent without monitoring. */
  monitoring: z.partialRecord(z.enum(["prometheus", "grafana"]), z.string().min(1)).optional(),
});

/** Schema of the output. */
export const environment = currentFields.superRefine(({ models, services }, context) => {
  const known = models.map(({ name }) => name);
  for (const [index, { models: served }] of services.entries()) {
    for (const [position, name] of served.entries()) {
      if (known.includes(name)) continue;
      const message = `must be one of ${known.join(", ")}, the models of the environment, got '${name}'`;
      const path = ["services", index, "models", position];
      context.addIssue({ code: "custom", path, message });
    }
  }
});
export type Environment = z.infer<typeof environment>;

/**
 * Name in Triton's requests of a model that a service serves, which is also its folder in the model repository: `openclip_vit_b32_trt`,
 * `openclip_vit_b32_text_trt`.
 *
 * @param model - One of the service's models. Defaults to the first.
 */
export function requestedModel(
  { models, modelKind }: Pick<Service, "models" | "modelKind">,
  model = models[0]!,
  modality: Modality = "image",
): string {
  const text = modelKind === "trt" || modelKind === "dali-trt" ? "text-trt" : "text";
  return tritonModelName({ name: model }, modality === "text" ? text : modelKind);
}
