/** Caddy's configuration of HTTPRoutes: HTTPS for their host names, and the weights of their backends. */

export interface HttpRoute {
  readonly metadata: { readonly namespace: string };
  readonly spec: {
    readonly hostnames: readonly string[];
    readonly rules: readonly {
      readonly backendRefs: readonly {
        readonly name: string;
        readonly port: number;
        readonly weight?: number;
      }[];
    }[];
  };
}

interface Service {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: { readonly clusterIP: string };
}

/** A weight is the number of times that a Service is in the rotation, after a division by the largest common divisor. */
export function gatewayConfig(routes: readonly HttpRoute[], services: readonly Service[]): string {
  const sites = routes.flatMap(({ metadata: { namespace }, spec }) =>
    spec.rules.map(({ backendRefs }) => {
      const divisor = backendRefs.map(({ weight = 1 }) => weight).reduce(greatestDivisor);
      const upstreams = backendRefs.flatMap(({ name, port, weight = 1 }) => {
        const { clusterIP } = services.find(
          ({ metadata }) => metadata.name === name && metadata.namespace === namespace,
        )?.spec ?? { clusterIP: "127.0.0.1" };
        return Array.from({ length: weight / divisor }, () => `${clusterIP}:${port}`);
      });
      return `${spec.hostnames.map((host) => `https://${host}:8443`).join(", ")} {
\ttls /tls/tls.crt /tls/tls.key
\treverse_proxy ${upstreams.join(" ")} {
\t\tlb_policy round_robin
\t\ttransport http {
\t\t\tkeepalive off
\t\t}
\t}
}
`;
    }),
  );
  return `{\n\tauto_https off\n\tgrace_period 30s\n}\n${sites.join("")}`;
}

function greatestDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestDivisor(b, a % b);
}
