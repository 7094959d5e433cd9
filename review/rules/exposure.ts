import { selects } from "../../artefact/cluster-objects.ts";
import { type PortClaim, portConflicts } from "../../constructs/checks/ports.ts";
import { isLoopback } from "../../contract/loopback.ts";
import { embedPort, tritonPorts } from "../../contract/ports.ts";
import { serviceTypes } from "../facts/chart-documents.ts";
import { hostPathsOf, runtimeSocket } from "../facts/host-paths.ts";
import {
  hostAddress,
  option,
  options,
  publishedPorts,
  type ServiceContainer,
  serviceContainers,
} from "../facts/service-containers.ts";
import { at, blocks, map, number, optionText, text } from "../facts/values.ts";
import {
  deploymentsOf,
  environmentOf,
  managedResources,
  metadataOf,
  podContainers,
  podOf,
  releasesOf,
  resourcesOf,
  specOf,
} from "../facts/workloads.ts";
import type { StackChange } from "../input/change.ts";
import { withoutUser } from "../input/secrets.ts";
import { onLoopback, openPorts, plainTextMatches } from "./plain-text.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

const tunnelHint = (service: string) =>
  `'npx clipstack tunnel' provides access to ${service} from other hosts`;

/** Service type in the chart values; hides invalid texts, which may be secrets. */
function serviceType(value: unknown): string {
  const type = text(value) ?? "ClusterIP";
  return serviceTypes.test(type) ? type : "(invalid type)";
}

/** Addresses at which other hosts reach a service through a proxy with TLS, while its container is on the loopback interface. */
function proxiedAddresses({ service }: ServiceContainer): readonly string[] {
  return (service?.endpoints ?? []).flatMap(({ protocol, url }) => {
    const { protocol: scheme, hostname } = URL.canParse(url) ? new URL(url) : { protocol: "" };
    const isOpen = scheme === "https:" && !isLoopback(hostname ?? "");
    return isOpen && protocol !== "metrics" ? [url] : [];
  });
}

function* tritonsOpenAt(change: StackChange, internal: readonly number[]) {
  for (const container of serviceContainers(change)) {
    if (container.kind !== "triton") continue;
    const open = openPorts(container)
      .filter((port) => internal.includes(number(port.internal) ?? 0))
      .map(hostAddress);
    if (internal.includes(tritonPorts.http)) open.push(...proxiedAddresses(container));
    if (open.length > 0) yield { container, open };
  }
}

/** Network exposure, access to the Docker engine, and ports of the host. */
export const exposureRules: readonly ReviewRule[] = [
  rule({
    id: "triton-exposed",
    severity: "warning",
    fix: `set expose to loopback: clients use the embed server, and ${tunnelHint("Triton")}`,
    *find(change) {
      for (const { container, open } of tritonsOpenAt(change, [
        tritonPorts.http,
        tritonPorts.grpc,
      ])) {
        const where = open.join(", ");
        yield {
          address: container.address,
          message: `Triton has no authentication and is reachable from other hosts at ${where}`,
        };
      }
      for (const { resource, values } of releasesOf(change)) {
        const type = serviceType(at(values, "triton", "service", "type"));
        if (type === "ClusterIP" || at(values, "triton", "enabled") === false) continue;
        yield {
          address: resource.address,
          message: `Triton has no authentication, and its Service is a ${type}`,
          fix: "set triton.service.type to ClusterIP",
        };
      }
    },
  }),
  rule({
    id: "model-control-exposed",
    severity: "error",
    fix: "set modelControl to explicit or none, or expose to loopback",
    *find(change) {
      for (const { container } of tritonsOpenAt(change, [tritonPorts.http, tritonPorts.grpc])) {
        const mode = option(container.command, "model-control-mode") ?? "none";
        if (mode === "none") continue;
        for (const flag of ["http-restricted-api", "grpc-restricted-protocol"] as const) {
          const restricted = options(container.command, flag).flatMap(
            (value) => value.split(":")[0]?.split(",") ?? [],
          );
          if (restricted.includes("model-repository")) continue;
          yield {
            address: container.address,
            message: `--${flag} must cover model-repository if clients beyond the host reach Triton, with --model-control-mode=${optionText("model-control-mode", String(mode))}`,
          };
        }
      }
      for (const { resource, values } of releasesOf(change)) {
        const type = serviceType(at(values, "triton", "service", "type"));
        if (type === "ClusterIP" || at(values, "triton", "enabled") === false) continue;
        if (at(values, "triton", "modelControl") !== "open") continue;
        yield {
          address: resource.address,
          message: `triton.modelControl must be restricted if Triton's Service is a ${type}, got 'open'`,
          fix: "set triton.modelControl to restricted, or triton.service.type to ClusterIP",
        };
      }
    },
  }),
  rule({
    id: "metrics-exposed",
    severity: "error",
    fix: `publish the metrics port on 127.0.0.1; ${tunnelHint("Prometheus")}`,
    *find(change) {
      for (const { container, open } of tritonsOpenAt(change, [tritonPorts.metrics])) {
        yield {
          address: container.address,
          message: `the metrics port must be on the loopback interface, got ${open[0]}`,
        };
      }
    },
  }),
  rule({
    id: "embed-anonymous",
    severity: "error",
    fix: "set embed.expose to loopback, or require an API key: API_KEY from a sensitive variable, or embed.keySecret in a cluster",
    *find(change) {
      for (const container of serviceContainers(change)) {
        if (container.env.get("ALLOW_ANONYMOUS") !== "true") continue;
        const open = openPorts(container)
          .filter((port) => (number(port.internal) ?? embedPort) === embedPort)
          .map(hostAddress);
        for (const where of [...open, ...proxiedAddresses(container)]) {
          yield {
            address: container.address,
            message: `ALLOW_ANONYMOUS must not be true if the embed server is reachable from other hosts, at ${where}`,
          };
        }
      }
      yield* anonymousServices(change);
      for (const { resource, values } of releasesOf(change)) {
        const type = serviceType(at(values, "embed", "service", "type"));
        const key = text(at(values, "embed", "auth", "existingSecret")) ?? "";
        if (type === "ClusterIP" || key !== "" || onLoopback(change)) continue;
        yield {
          address: resource.address,
          message: `the embed server must require an API key if its Service is a ${type}, got none`,
        };
      }
    },
  }),
  rule({
    id: "plain-text-exposed",
    severity: "error",
    fix: "set embed.tls, set expose to loopback, or set allowPlaintext: true if the network is private or a proxy has TLS",
    find: plainTextMatches,
  }),
  rule({
    id: "host-network",
    severity: "warning",
    fix: "remove network_mode host and publish the required ports",
    find: each(serviceContainers, ({ values }) =>
      values.network_mode === "host" ? "network_mode should not be host" : undefined,
    ),
  }),
  rule({
    id: "docker-socket-mounted",
    severity: "error",
    fix: "remove the mount of the socket",
    find: each(managedResources, ({ after }) =>
      hostPathsOf(after)
        .filter((path) => runtimeSocket.test(path))
        .map((path) => `must not mount the socket ${path}`),
    ),
  }),
  rule({
    id: "docker-endpoint-plain",
    severity: "error",
    fix: "set host.docker to 'ssh://user@host'",
    *find(change) {
      const providers = blocks(at(change.configuration?.provider, "docker"));
      const plain = [
        ...providers.filter((it) => it.cert_path === undefined && it.ca_material === undefined),
        { host: environmentOf(change)?.where },
      ].flatMap(({ host }) => (/^(tcp|http):\/\//.test(text(host) ?? "") ? [text(host)] : []));
      for (const host of new Set(plain)) {
        yield {
          message: `Docker must be reached over SSH, TLS or a socket, got '${withoutUser(host ?? "")}'`,
        };
      }
    },
  }),
  rule({
    id: "port-conflict",
    severity: "error",
    fix: "assign one of them a different port in the settings (embed.port, tritonOnnx.ports, tritonTrt.ports)",
    *find(change) {
      const earlier: PortClaim[] = [];
      for (const { address, values } of serviceContainers(change)) {
        const mine = publishedPorts(values).flatMap(({ external }, index): PortClaim[] => {
          const port = number(external);
          return port === undefined ? [] : [{ service: address, prop: `ports.${index}`, port }];
        });
        for (const { finding } of portConflicts(mine, earlier)) yield { address, message: finding };
        earlier.push(...mine);
      }
    },
  }),
  rule({
    id: "node-port-mapped",
    severity: "error",
    fix: "use a mapped port, or add the port to cluster.portMappings, which recreates the cluster",
    *find(change) {
      const mappings = resourcesOf(change, "terraform_data").flatMap(
        ({ after }) => text(at(after?.input, "portMappings")) ?? [],
      );
      if (mappings.length === 0) return;
      const mapped = mappings.flatMap((line) =>
        [...line.matchAll(/(\d+) to \d+/g)].map((match) => Number(match[1])),
      );
      for (const { address, nodePort } of nodePortsOf(change)) {
        if (mapped.includes(nodePort)) continue;
        yield {
          address,
          message: `node_port must be a port mapped by kind (${mapped.join(", ")}), got ${nodePort}`,
        };
      }
    },
  }),
];

function* anonymousServices(change: StackChange) {
  if (onLoopback(change)) return;
  for (const service of resourcesOf(change, "kubernetes_service")) {
    const type = text(specOf(service).type) ?? "ClusterIP";
    if (type === "ClusterIP") continue;
    const selector = map(specOf(service).selector);
    const anonymous = deploymentsOf(change)
      .map(podOf)
      .filter(({ labels }) => selects(selector, labels))
      .flatMap(({ pod }) => podContainers(pod).flatMap((container) => blocks(container.env)))
      .some(({ name, value }) => name === "ALLOW_ANONYMOUS" && value === "true");
    if (!anonymous) continue;
    const name = text(metadataOf(service).name) ?? service.name;
    yield {
      address: service.address,
      message: `the embed server must require an API key if its Service ${name} is a ${type}, got ALLOW_ANONYMOUS true`,
    };
  }
}

/** Fixed NodePorts, typed and from chart values. */
function nodePortsOf(
  change: StackChange,
): readonly { readonly address: string; readonly nodePort: number }[] {
  const typed = resourcesOf(change, "kubernetes_service").flatMap((service) =>
    blocks(specOf(service).port).map((port) => ({
      address: service.address,
      nodePort: number(port.node_port) ?? 0,
    })),
  );
  const ofCharts = releasesOf(change).map(({ resource, values }) => ({
    address: resource.address,
    nodePort: number(at(values, "embed", "service", "nodePort")) ?? 0,
  }));
  // 0: chosen by Kubernetes
  return [...typed, ...ofCharts].filter(({ nodePort }) => nodePort > 0);
}
