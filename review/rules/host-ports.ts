import { renderFinding } from "../../constructs/checks/findings.ts";
import { type PortClaim, portConflicts } from "../../constructs/checks/ports.ts";
import type { StackChange } from "../input/change.ts";
import { containerPath, tritonOnnx } from "./example-paths.ts";
import { releasesOf, resourcesOf, specOf } from "./facts.ts";
import { type ReviewRule, rule } from "./rule.ts";
import { publishedPorts, serviceContainers } from "./service-containers.ts";
import { at, blocks, number, text } from "./values.ts";

/** Ports of the host that containers, kind and Services use. */
export const hostPortRules: readonly ReviewRule[] = [
  rule({
    id: "port-conflict",
    severity: "error",
    title: "Containers publish different host ports.",
    rationale:
      "The second container cannot start: the apply fails halfway, with some resources already replaced.",
    inputs: "`ports` of every `docker_container` of the stack, including their bind addresses.",
    fix: "assign one of them a different port in the settings (embed.port, tritonOnnx.ports, tritonTrt.ports)",
    example: {
      stack: "single-gpu",
      message:
        "ports.0 must be free on the host, got 8002, which docker_container.embed_container_3CD7E964 (ports.0) uses",
      edits: [
        { path: containerPath(tritonOnnx, "ports", 0, "external"), failing: 8002, passing: 8010 },
      ],
    },
    *find(change) {
      const earlier: PortClaim[] = [];
      for (const { address, values } of serviceContainers(change)) {
        const mine = publishedPorts(values).flatMap(({ external }, index): PortClaim[] => {
          const port = number(external);
          return port === undefined ? [] : [{ service: address, prop: `ports.${index}`, port }];
        });
        for (const finding of portConflicts(mine, earlier))
          yield { address, message: renderFinding(finding) };
        earlier.push(...mine);
      }
    },
  }),
  rule({
    id: "node-port-mapped",
    severity: "error",
    title: "kind maps every NodePort to the host.",
    rationale:
      "A kind node is a container: only ports mapped at cluster creation are reachable from outside.",
    inputs:
      "`node_port` of every Service in a stack that creates a kind cluster, and the cluster's port mappings.",
    fix: "use a mapped port, or add the port to cluster.portMappings, which recreates the cluster",
    example: {
      stack: "kind-local",
      message: "node_port must be a port mapped by kind (30092), got 30093",
      edits: [
        {
          path: [
            ...["resource", "kubernetes_service_v1", "embed/service", "spec"],
            ...["port", 0, "node_port"],
          ],
          failing: 30093,
          passing: 30092,
        },
      ],
    },
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
