/** Prometheus' scrape configuration of ServiceMonitors, in place of its operator and of its discovery, which Debian's package lacks. */

interface Endpoint {
  readonly port: string;
  readonly path?: string;
  readonly interval?: string;
  readonly scheme?: string;
  readonly authorization?: {
    readonly credentials: { readonly name: string; readonly key: string };
  };
}

/** Fields of a ServiceMonitor that the chart sets. */
export interface ServiceMonitor {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: {
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly namespaceSelector: { readonly matchNames: readonly string[] };
    readonly endpoints: readonly Endpoint[];
  };
}

/** EndpointSlice, which has the labels of its Service. */
export interface EndpointSlice {
  readonly metadata: {
    readonly namespace: string;
    readonly labels: Readonly<Record<string, string>>;
  };
  readonly ports: readonly { readonly name: string; readonly port: number }[] | null;
  readonly endpoints:
    | readonly {
        readonly addresses: readonly string[];
        readonly targetRef?: { readonly name: string };
      }[]
    | null;
}

/** @param secret - Value of a key of a Secret in a namespace. */
export function scrapeConfig(
  monitors: readonly ServiceMonitor[],
  slices: readonly EndpointSlice[],
  secret: (namespace: string, name: string, key: string) => string,
) {
  return {
    scrape_configs: monitors.flatMap(({ metadata, spec }) => {
      const selected = slices.filter(
        ({ metadata: { namespace, labels } }) =>
          spec.namespaceSelector.matchNames.includes(namespace) &&
          Object.entries(spec.selector.matchLabels).every(
            ([name, value]) => labels[name] === value,
          ),
      );
      return spec.endpoints.map((endpoint, index) => {
        const credentials = endpoint.authorization?.credentials;
        return {
          job_name: `${metadata.namespace}/${metadata.name}/${index}`,
          scrape_interval: endpoint.interval,
          metrics_path: endpoint.path,
          scheme: endpoint.scheme ?? "http",
          ...(credentials !== undefined && {
            authorization: {
              credentials: secret(metadata.namespace, credentials.name, credentials.key),
            },
          }),
          static_configs: selected.flatMap(
            ({ metadata: { namespace, labels }, ports, endpoints }) => {
              const port = ports?.find(({ name }) => name === endpoint.port)?.port;
              if (port === undefined) return [];
              return (endpoints ?? []).map(({ addresses, targetRef }) => ({
                targets: [`${addresses[0]}:${port}`],
                labels: {
                  ...{ namespace, pod: targetRef?.name },
                  service: labels["kubernetes.io/service-name"],
                },
              }));
            },
          ),
        };
      });
    }),
  };
}
