import { z } from "zod";
import {
  annotations,
  flag,
  integer,
  matching,
  objectName,
  reference,
} from "./chart-value-fields.ts";

const labelSelector = z.strictObject({
  matchLabels: z.record(z.string(), z.string()).optional(),
  matchExpressions: z
    .array(
      z.strictObject({
        key: z.string().min(1),
        operator: z.enum(["In", "NotIn", "Exists", "DoesNotExist"]),
        values: z.array(z.string()).optional(),
      }),
    )
    .optional(),
});

// Strict: Kubernetes ignores unknown fields, and a rule without `to` allows all destinations.
const networkPeer = z.strictObject({
  podSelector: labelSelector.optional(),
  namespaceSelector: labelSelector.optional(),
  ipBlock: z
    .strictObject({ cidr: z.string().min(1), except: z.array(z.string().min(1)).optional() })
    .optional(),
});
const portNumber = integer(1, 65_535);
export const egressRule = z.strictObject({
  to: z.array(networkPeer).optional(),
  ports: z
    .array(
      z.strictObject({
        protocol: z.enum(["TCP", "UDP", "SCTP"]).optional(),
        port: z.union([portNumber, z.string().min(1)]).optional(),
        endPort: portNumber.optional(),
      }),
    )
    .optional(),
});

const networkPeers = (description: string) =>
  z.array(networkPeer).default([]).describe(description);

export const networkPolicy = z
  .strictObject({
    enabled: flag(true, "Whether NetworkPolicies allow only the required connections."),
    embedFrom: networkPeers(
      "Peers that may connect to the embed server, besides `helm test` and, with `serviceMonitor`, `metricsFrom`; empty allows all.",
    ),
    tritonFrom: networkPeers(
      "Peers that may connect to Triton, besides the embed server; with an embed server, empty allows no others.",
    ),
    metricsFrom: networkPeers(
      "Peers that may read the metrics of Triton and the embed server. For Triton, empty allows all pods of the cluster; for the embed server, see `embedFrom`.",
    ),
    egress: z
      .array(egressRule)
      .default([])
      .describe("Additional egress rules of the NetworkPolicies."),
  })
  .prefault({});

export const ingress = z
  .strictObject({
    enabled: flag(false, "Whether the chart creates an Ingress for the embed server."),
    className: reference("Class of the Ingress; empty selects the cluster's default."),
    host: matching("(\\*\\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "Host name of the requests."),
    tlsSecretName: reference(
      "Secret with the certificate for `host`; with cert-manager, its name for the Secret that it creates.",
    ),
    allowPlaintext: flag(
      false,
      "Whether the Ingress may have no `tlsSecretName`, for a load balancer that has the certificate.",
    ),
    annotations: annotations(
      "Annotations, such as `cert-manager.io/cluster-issuer`, or the controller's limits of body size and time.",
    ),
  })
  .prefault({})
  .describe("Ingress for the embed server.");

/** Reference to a Gateway and to one of its listeners. */
const parentRef = z.strictObject({
  name: objectName,
  namespace: objectName.optional(),
  sectionName: objectName.optional(),
  port: portNumber.optional(),
});

const gatewayRoute = (kind: "HTTPRoute" | "GRPCRoute", server: string, more: string) =>
  z
    .strictObject({
      enabled: flag(
        false,
        `Whether the chart creates a ${kind} (Gateway API) for ${server}.${more}`,
      ),
      parentRefs: z
        .array(parentRef)
        .default([])
        .describe("Gateways; `sectionName` names the listener, which must have TLS."),
      hostnames: z
        .array(z.string().regex(/^(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/))
        .default([])
        .describe("Host names of the requests; empty takes those of the listener."),
      allowPlaintext: flag(
        false,
        "Whether `parentRefs` may have no `sectionName`, so that the route is also attached to listeners without TLS.",
      ),
      annotations: annotations("Annotations."),
    })
    .prefault({})
    .describe(`${kind} for ${server}.`);

export const httpRoute = gatewayRoute("HTTPRoute", "the embed server", "");
export const grpcRoute = gatewayRoute(
  "GRPCRoute",
  "Triton",
  " Its clients may connect to Triton unless `networkPolicy.tritonFrom` says which.",
);
