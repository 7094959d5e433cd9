import type { Workload } from "../../artefact/workload.ts";
import { hasEmbedApi, type ServiceEndpoint } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import type { TargetEndpoint } from "../requests/target-endpoint.ts";
import { openService, orClose, type RunningServices } from "../service/target-service.ts";
import { type OpenOptions, openServices } from "./open-services.ts";
import type { OpenTarget } from "./open-target.ts";

/** Addresses given on the command line. */
export interface AddressesSource {
  readonly kind: "addresses";
  readonly endpoints: readonly { readonly endpoint: ServiceEndpoint; readonly url: string }[];
  /** Metrics pages of the embed server, the ONNX Triton and the TensorRT Triton. */
  readonly metrics: readonly { readonly backend: "embed" | "onnx" | "trt"; readonly url: string }[];
  readonly apiKey?: string;
  /** Precision that the servers compute in. */
  readonly precision?: TargetEndpoint["precision"];
  /** Runs `nvidia-smi`, if the servers run on this machine. */
  readonly readGpus?: OpenTarget["readGpus"];
  /** Version of this machine's NVIDIA driver. */
  readonly readDriver?: () => Promise<string | undefined>;
}

/** Services that the addresses may belong to. */
const knownServices = [
  { name: "embed", kind: "embed", backend: "onnxruntime", prefix: "embed", modelKind: "fp32" },
  {
    name: "triton-onnx",
    kind: "triton",
    backend: "onnxruntime",
    prefix: "onnx",
    modelKind: "fp32",
  },
  { name: "triton-trt", kind: "triton", backend: "tensorrt", prefix: "trt", modelKind: "trt" },
  { name: "pytorch", kind: "baseline", backend: "pytorch", prefix: "pytorch", modelKind: "fp32" },
] as const;

/** Environment name in records of addresses. */
const addressesName = "addresses";

/** Opens the given addresses. */
export async function openAddresses(
  { endpoints, metrics, apiKey, precision, readGpus, readDriver }: AddressesSource,
  { tower, onPhase }: OpenOptions,
): Promise<OpenTarget> {
  onPhase(`connecting to ${endpoints.map(({ url }) => url).join(", ")}`);
  const services = knownServices.flatMap(({ prefix, ...known }) => {
    const own = endpoints.filter(({ endpoint }) => endpoint.startsWith(prefix));
    if (own.length === 0) return [];
    const workload = workloadOf(known, tower.spec, own);
    const targets = workload.service.endpoints.map((endpoint) => ({
      workload,
      endpoint,
      url: endpoint.url,
    }));
    const key = known.kind === "embed" ? apiKey : undefined;
    return [openService(addressesName, workload, [tower.spec], [], targets, key)];
  });
  const running: RunningServices = {
    services,
    async close() {
      await Promise.all(services.map((service) => service.close()));
    },
  };
  const driver = await readDriver?.();
  return orClose(running, () =>
    openServices(running, tower, undefined, {
      target: "addresses",
      reach: (service) => ({
        metrics: metrics
          .filter(({ backend }) => service.workload.name.endsWith(backend))
          .map(({ url }) => ({ name: url, role: service.workload.service.kind, url })),
        apiKey: service.apiKey,
        pids: [],
        precision,
      }),
      driver,
      readGpus,
      environments: () => [],
      notes: [
        `The addresses were given on the command line (${endpoints.map(({ endpoint, url }) => `${endpoint} ${url}`).join(", ")}); names and versions are reported by the servers.`,
      ],
    }),
  );
}

function workloadOf(
  known: Omit<(typeof knownServices)[number], "prefix">,
  { name }: ModelSpec,
  endpoints: AddressesSource["endpoints"],
): Workload {
  return {
    service: {
      ...known,
      models: [name],
      resources: {},
      endpoints: endpoints.map(({ endpoint, url }) => ({
        protocol: protocolOf(endpoint),
        name: endpoint,
        url,
      })),
    },
    address: "",
    kind: "container",
    name: known.name,
    command: [],
    env: {},
    published: [],
    inCluster: [],
    volumes: [],
    probes: [],
    replicas: 1,
    graceSeconds: 0,
    aliases: [],
    networks: [],
    faults: [],
  };
}

function protocolOf(endpoint: ServiceEndpoint) {
  if (hasEmbedApi(endpoint)) return "embed-http";
  return endpoint.endsWith("-grpc") ? "oip-grpc" : "oip-http";
}
