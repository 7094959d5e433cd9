import type { Endpoint } from "../contract/environment.ts";
import { clusterAddress } from "./cluster-address.ts";
import type { SimulatedServer } from "./simulated-server.ts";
import {
  type Fault,
  type ListenerProtocol,
  loopback,
  type ProxyPlan,
  type Target,
} from "./simulation-types.ts";
import { hasHostName, type Workload } from "./workload.ts";

/** Creates the proxy that spreads connections to `port` over the replicas' listeners on a container port. */
type ProxyTo = (workload: Workload, internal: number, port: number) => ProxyPlan;

/**
 * Proxies for endpoints that are reachable only inside the cluster, by host and port of the endpoint. They have no port
 * on this machine, so any free one is used.
 */
export function clusterProxies(
  workloads: readonly Workload[],
  proxyTo: ProxyTo,
  freePort: () => number,
): ReadonlyMap<string, ProxyPlan> {
  const proxies = new Map<string, ProxyPlan>();
  for (const workload of workloads) {
    for (const { url } of workload.service.endpoints) {
      const address = clusterAddress(url);
      const port = workload.inCluster.find(({ external }) => external === address?.port);
      if (address === undefined || port === undefined || proxies.has(hostOf(url))) continue;
      if (!hasHostName(workload, address.service)) continue;
      proxies.set(hostOf(url), proxyTo(workload, port.internal, freePort()));
    }
  }
  return proxies;
}

export interface LocalEndpointOptions {
  /** Port of this machine for a published port. */
  readonly shift: (port: number) => number;
  readonly clusterProxies: ReadonlyMap<string, ProxyPlan>;
  /** Receives the faults of the synthesized file. */
  readonly faults: Fault[];
}

/** Returns the endpoint with its address on this machine. If no container publishes it, the endpoint has no URL, and a fault is added. */
export function localEndpoint(
  { workload, listens }: SimulatedServer,
  endpoint: Endpoint,
  { shift, clusterProxies, faults }: LocalEndpointOptions,
): Target {
  const address = clusterAddress(endpoint.url);
  const port = address?.port ?? Number(/:(\d+)\/?$/.exec(endpoint.url)?.[1] ?? Number.NaN);
  const ports = address === undefined ? workload.published : workload.inCluster;
  const published =
    ports.find(({ external }) => external === port) ?? behindProxy(workload, listens, endpoint);
  const proxy = clusterProxies.get(hostOf(endpoint.url));
  if (published === undefined || (address !== undefined && proxy === undefined)) {
    const externalPorts = ports.map(({ external }) => external).join(", ") || "no port";
    faults.push({
      workload,
      message: `publishes ${externalPorts}, but the environment's ${endpoint.protocol} endpoint is ${endpoint.url}`,
    });
    return { workload, endpoint };
  }
  const listening = listens.find(({ internal }) => internal === published.internal);
  // reported as a fault of the published port
  if (listening === undefined) return { workload, endpoint };
  if (!supports(listening.protocol, endpoint.protocol)) {
    faults.push({
      workload,
      message: `serves ${listening.protocol} at ${endpoint.url}, but the environment declares ${endpoint.protocol}`,
    });
    return { workload, endpoint };
  }
  const local = `${loopback}:${proxy?.port ?? shift(published.external)}`;
  return {
    workload,
    endpoint,
    url: endpoint.protocol === "oip-grpc" ? local : `http://${local}`,
  };
}

/** Published port of a container that has no TLS itself, for an endpoint with TLS: a proxy, which is not simulated, forwards to the container. */
function behindProxy(
  { published, env }: Workload,
  listens: SimulatedServer["listens"],
  { url, protocol }: Endpoint,
) {
  if (!url.startsWith("https://") || env.TLS_CERT_FILE !== undefined) return undefined;
  const internal = listens.find((it) => supports(it.protocol, protocol))?.internal;
  return published.find((port) => port.internal === internal);
}

/** Host and port of an endpoint, which the endpoints of one Service share. */
function hostOf(url: string): string {
  return url.replace(/^[a-z]+:\/{2,3}/, "").replace(/\/$/, "");
}

/** Returns whether a listener serves a protocol; the embed server serves its API and its metrics on one port. */
function supports(listener: ListenerProtocol, protocol: Endpoint["protocol"]): boolean {
  return listener === protocol || (listener === "embed-http" && protocol === "metrics");
}
