import { renderFinding } from "../../constructs/checks/findings.ts";
import { type PortClaim, portConflicts } from "../../constructs/checks/ports.ts";
import { publishedPorts, serviceContainers } from "../facts/service-containers.ts";
import { at, blocks, number, text } from "../facts/values.ts";
import { releasesOf, resourcesOf, specOf } from "../facts/workloads.ts";
import type { StackChange } from "../input/change.ts";
import { type ReviewRule, rule } from "./rule.ts";

/** Ports of the host that containers, kind and Services use. */
export const hostPortRules: readonly ReviewRule[] = [
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
        for (const finding of portConflicts(mine, earlier))
          yield { address, message: renderFinding(finding) };
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
