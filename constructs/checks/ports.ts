import { nodePortRange } from "../../contract/ports.ts";
import { type Finding, findingIf } from "./findings.ts";

/** Host port that a service publishes. */
export interface PortClaim {
  readonly service: string;
  /** Name of the prop that sets it: `ports.http`. */
  readonly prop: string;
  readonly port: number;
}

/** Rejects claims of a port that an earlier claim, or another of these claims, already uses. */
export function portConflicts(
  claims: readonly PortClaim[],
  earlier: readonly PortClaim[],
): readonly Finding[] {
  return claims.flatMap((claim, index) => {
    const holder = [...earlier, ...claims.slice(0, index)].find(
      (other) => other.port === claim.port,
    );
    return holder === undefined
      ? []
      : [
          {
            path: claim.prop,
            must: "be free on the host",
            got: `${claim.port}, which ${holder.service} (${holder.prop}) uses`,
          },
        ];
  });
}

/** Rejects a NodePort outside Kubernetes' range or without a port mapping. */
export function nodePortFindings(nodePort: number, mapped: readonly number[]): readonly Finding[] {
  const { min, max } = nodePortRange;
  return [
    ...findingIf(nodePort < min || nodePort > max, "nodePort", `be ${min} to ${max}`, nodePort),
    ...findingIf(
      !mapped.includes(nodePort),
      "nodePort",
      `be one that kind maps (cluster.portMappings: ${mapped.join(", ")})`,
      nodePort,
    ),
  ];
}

/** Rejects a Triton published on all interfaces, because Triton has no authentication. */
export function exposureFindings(
  expose: "loopback" | "all-interfaces",
  allowUnauthenticated: boolean,
  modelControl: "none" | "explicit" | "open",
): readonly Finding[] {
  if (expose === "loopback") return [];
  if (allowUnauthenticated) {
    return findingIf(
      modelControl === "open",
      "modelControl",
      "be explicit or none if all interfaces reach Triton: with open, every client could load another configuration or unload the model",
      "'open'",
    );
  }
  return findingIf(
    true,
    "expose",
    "be loopback: Triton has no authentication, so it is reached through the embed server as gateway, or with 'npx clipstack tunnel'; allowUnauthenticated: true exposes it anyway",
    "'all-interfaces'",
  );
}
