import { z } from "zod";

/**
 * Terraform output `environment`: the services of an environment as one JSON value. `bench`, `verify` and the client read it from
 * `cdk.tf.json` or `terraform output -json`, so it contains no value that only Terraform can resolve.
 */

export const environmentOutput = "environment";

export const endpointNames = [
  "embed-http",
  "onnx-http",
  "onnx-grpc",
  "trt-http",
  "trt-grpc",
] as const;
/** Service and protocol that return embeddings. */
export type EndpointName = (typeof endpointNames)[number];

/** Version of {@link environment}. */
export const environmentSchema = 2;

export const endpoint = z.strictObject({
  protocol: z.enum(["embed-http", "oip-http", "oip-grpc", "metrics"]),
  /**
   * `http://host:port`, or `host:port` for gRPC, without a path. A host `<Service>.<namespace>.svc` resolves only inside the cluster;
   * commands outside use `kubectl port-forward`.
   */
  url: z.string().min(1),
  /** Absent if the endpoint returns no embeddings. */
  name: z.enum(endpointNames).optional(),
});
export type Endpoint = z.infer<typeof endpoint>;

/** Programs that serve Triton's protocol: NVIDIA's server, or the Triton emulator in the embed image. */
export const tritonServers = ["tritonserver", "emulator"] as const;
export type TritonServerKind = (typeof tritonServers)[number];

export const service = z.strictObject({
  /** `embed`, `triton-onnx`, `triton-trt`, `triton-0`, …; the id of its construct in the stack. */
  name: z.string().min(1),
  kind: z.enum(["embed", "triton"]),
  /** Backend that executes the model; `triton` is the embed server as gateway. */
  backend: z.enum(["onnxruntime", "tensorrt", "triton"]),
  /** Program that serves Triton's protocol; absent for `embed`. */
  server: z.enum(tritonServers).optional(),
  /** Model name in requests. */
  model: z.string().min(1),
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

const currentEnvironment = z.strictObject({
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
      /** Key of the GPU catalogue. */
      name: z.string(),
      count: z.int().min(1),
      vramMiB: z.int().min(1),
      /** US dollars per hour for all GPUs of the environment, and the month of the price. */
      usdPerHour: z.number().min(0),
      priceDate: z.string(),
    })
    .optional(),
  services: z.array(service).min(1),
});
export type Environment = z.infer<typeof currentEnvironment>;

/** Schema 1, which existing states and plans may contain. */
const firstSchema = z.looseObject({
  schema: z.literal(1),
  services: z.array(
    z.looseObject({
      backend: z.string(),
      engine: z.string().optional(),
      endpoints: z.array(z.looseObject({ path: z.string().optional() })),
    }),
  ),
});

function upgraded(value: unknown): unknown {
  const { data } = firstSchema.safeParse(value);
  if (data === undefined) return value;
  const services = data.services.map(({ engine, backend, endpoints, ...service }) => ({
    ...service,
    backend: backend === "onnx" ? "onnxruntime" : backend,
    ...(engine !== undefined && { server: engine === "bundled" ? "emulator" : engine }),
    endpoints: endpoints.map(({ path, ...endpoint }) => ({
      ...endpoint,
      ...(path !== undefined && { name: path }),
    })),
  }));
  return { ...data, schema: environmentSchema, services };
}

/** Schema of the output; reads schema 1 too. */
export const environment = z.preprocess(upgraded, currentEnvironment);
