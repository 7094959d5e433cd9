/** Address of a Service inside its cluster. */
export interface ClusterAddress {
  readonly service: string;
  readonly namespace: string;
  readonly port: number;
}

/**
 * Parses the URL of an endpoint inside a cluster: `http://<Service>.<namespace>.svc:<port>`, without a scheme for gRPC.
 *
 * @returns `undefined` for any other address.
 */
export function clusterAddress(url: string): ClusterAddress | undefined {
  const match =
    /^(?:[a-z]+:\/{2,3})?([a-z0-9-]+)\.([a-z0-9-]+)\.svc(?:\.[a-z0-9.-]+)?(?::(\d+))?\/?$/.exec(
      url,
    );
  if (match === null) return undefined;
  const [, service = "", namespace = "", port = "80"] = match;
  return { service, namespace, port: Number(port) };
}
