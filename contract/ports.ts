/** Default ports of all services. Containers use Triton's own ports; host ports must not collide. */

/** Ports of one Triton server. */
export interface TritonPorts {
  readonly http: number;
  readonly grpc: number;
  readonly metrics: number;
}

/** Ports inside a Triton container: Triton's defaults. */
export const tritonPorts = {
  http: 8000,
  grpc: 8001,
  metrics: 8002,
} as const satisfies TritonPorts;

/** Port of the embed server, in its container and (by default) on the host. */
export const embedPort = 8002;

/** Port of the PyTorch baseline, in its container and on the host. */
export const baselinePort = 8006;

/** Ports of Prometheus and Grafana, in their containers and (by default) on the host. */
export const monitoringPorts = { prometheus: 9090, grafana: 3000 } as const;

/** Port of DCGM exporter in its container. */
export const dcgmExporterPort = 9400;

/** Default ports on a GPU host. */
export const hostPorts = {
  embed: embedPort,
  tritonOnnx: { http: 8010, grpc: 8011, metrics: 8012 },
  tritonTrt: { http: 8020, grpc: 8021, metrics: 8022 },
} as const satisfies { embed: number; tritonOnnx: TritonPorts; tritonTrt: TritonPorts };

/** Host ports of Triton `index` of the topology `per-gpu`: 8010-8012, 8020-8022, 8030-8032, … */
export function perGpuHostPorts(index: number): TritonPorts {
  const base = hostPorts.tritonOnnx.http + 10 * index;
  return { http: base, grpc: base + 1, metrics: base + 2 };
}

/** Distance between a plain-text port of a Triton server on a host and its port with TLS: 8010 and 9010. */
export const tritonTlsOffset = 1_000;

/** Ports of the host for the proxy that gets certificates from an ACME server. */
export const tlsProxyPorts = { http: 80, https: 443 } as const;

/** Ports inside its container, which require no capability, and which no Triton server's port with TLS has. */
export const tlsProxyContainerPorts = { http: 1_080, https: 1_443, health: 1_019 } as const;

/** Ports of a standalone Triton emulator on a laptop, besides the embed server. */
export const standaloneTritonPorts = {
  http: 8003,
  grpc: 8004,
  metrics: 8005,
} as const satisfies TritonPorts;

/** Stack `kind`: NodePort in the cluster, and the port of this machine that kind maps to it. */
export const kindPorts = { nodePort: 30092, host: 8092 } as const;

/** Kubernetes' default range of NodePorts. */
export const nodePortRange = { min: 30_000, max: 32_767 } as const;

/** Ports of the example application's review page and of its demo. */
export const uiPorts = { ui: 8000, demo: 8001 } as const;
