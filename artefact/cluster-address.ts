/** A Service as it is named inside its cluster. */
export interface ClusterAddress {
  readonly service: string;
  readonly namespace: string;
  readonly port: number;
}

/**
 * The Service of an endpoint that only its cluster answers: `http://<Service>.<namespace>.svc:<port>`, without a scheme
 * for gRPC.
 *
 * @returns Nothing for an address that is reached from outside.
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
