import { nodePortRange } from "../../contract/ports.ts";
import { finding, findingIf } from "./findings.ts";

/** Host port that a service publishes. */
export interface PortClaim {
  readonly service: string;
  /** Name of the prop that sets it: `ports.http`. */
  readonly prop: string;
  readonly port: number;
}

/** Port that two services of a host publish. */
export interface PortConflict {
  readonly port: number;
  readonly services: readonly [string, string];
  /** Violation of the later claim. */
  readonly finding: string;
}

/** Conflict with the path of the construct that reports it. */
export interface ReportedConflict extends PortConflict {
  readonly construct: string;
}

/** Conflicts of claims with earlier claims, and with each other. */
export function portConflicts(
  claims: readonly PortClaim[],
  earlier: readonly PortClaim[],
): readonly PortConflict[] {
  return claims.flatMap((claim, index) => {
    const holder = [...earlier, ...claims.slice(0, index)].find(
      (other) => other.port === claim.port,
    );
    if (holder === undefined) return [];
    const got = `${claim.port}, which ${holder.service} (${holder.prop}) uses`;
    const services = [claim.service, holder.service] as const;
    return [
      { port: claim.port, services, finding: finding(claim.prop, "be free on the host", got) },
    ];
  });
}

/** Rejects a NodePort outside Kubernetes' range or without a port mapping. */
export function nodePortFindings(nodePort: number, mapped: readonly number[]): readonly string[] {
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

/** Label of a container that may be published on all interfaces without TLS, which the review reads. */
export const plaintextLabel = "allow-plaintext";

/** Rejects a port that is published on all interfaces without TLS. */
export function plaintextFindings(
  expose: "loopback" | "all-interfaces",
  isAllowed: boolean,
  unless?: string,
): readonly string[] {
  return findingIf(
    expose !== "loopback" && !isAllowed,
    "expose",
    `be loopback${unless === undefined ? "" : ` unless ${unless}`}, because requests would be sent in clear text; allowPlaintext: true exposes the port anyway`,
    "'all-interfaces'",
  );
}

/** Rejects a Triton server published on all interfaces, because Triton has no authentication. */
export function exposureFindings(
  expose: "loopback" | "all-interfaces",
  allowUnauthenticated: boolean,
  modelControl: "none" | "explicit" | "open",
): readonly string[] {
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
