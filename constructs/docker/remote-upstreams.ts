import { isIP, isIPv6 } from "node:net";
import type { ContainerVolumes } from "#providers/docker/lib/container/index.js";
import { grpcTarget, type ServerEnvName, splitTarget } from "../../contract/server/server-env.ts";
import { finding, findingIf } from "../checks/findings.ts";
import type { RequiredFile } from "./host-requirements.ts";

/** Files of the gateway's host with which it connects to a Triton server over TLS, and the expected name. */
export interface UpstreamTls {
  /** PEM file with the certificate authorities that sign the server's certificate. */
  readonly ca: string;
  /**
   * PEM files with the gateway's certificate chain and private key.
   *
   * @default - the gateway has no certificate
   */
  readonly cert?: string;
  readonly key?: string;
  /**
   * Name in the server's certificate.
   *
   * @default - the host in `grpc`
   */
  readonly serverName?: string;
}

/** Triton server on another host. */
export interface RemoteUpstream {
  /** `host:port` of its gRPC port; an IPv6 address in brackets. */
  readonly grpc: string;
  /** @default - no TLS: images are sent in clear text */
  readonly tls?: UpstreamTls;
}

/** Addresses, environment variables, mounts and files of an embed server for Triton servers on other hosts. */
export interface RemoteUpstreamPlan {
  readonly targets: readonly string[];
  /** Whether an address is an IPv6 address; a Docker network has no IPv6 by default. */
  readonly needsIpv6: boolean;
  readonly env: Partial<Record<ServerEnvName, string>>;
  readonly mounts: readonly ContainerVolumes[];
  readonly files: readonly RequiredFile[];
}

export function remoteUpstreamPlan(upstreams: readonly RemoteUpstream[]): RemoteUpstreamPlan {
  const tls = upstreams[0]?.tls;
  const targets = upstreams.map(({ grpc }) => grpc);
  const files = Object.entries(tlsFiles).flatMap(([file, { env, what }]) => {
    const path = tls?.[file as keyof typeof tlsFiles];
    return path === undefined ? [] : [{ env, what, path, containerPath: `/tls/${file}.pem` }];
  });
  return {
    targets,
    needsIpv6: targets.some((target) => isIPv6(splitTarget(target).host)),
    env: {
      ...Object.fromEntries(files.map(({ env, containerPath }) => [env, containerPath])),
      ...(tls?.serverName !== undefined && { TRITON_TLS_SERVER_NAME: tls.serverName }),
    },
    mounts: files.map(({ path: hostPath, containerPath }) => ({
      hostPath,
      containerPath,
      readOnly: true,
    })),
    files: files.map(({ path, what }) => ({ path, on: "host", what: `${what} of the upstreams` })),
  };
}

const tlsFiles = {
  ca: { env: "TRITON_TLS_CA_FILE", what: "certificate authorities" },
  cert: { env: "TRITON_TLS_CERT_FILE", what: "gateway certificate" },
  key: { env: "TRITON_TLS_KEY_FILE", what: "gateway key" },
} as const satisfies Record<string, { env: ServerEnvName; what: string }>;

/**
 * Findings about Triton servers on other hosts.
 *
 * @param ownUpstreams - Number of Triton servers of this host to which a gateway forwards; undefined for another backend.
 */
export function upstreamFindings(
  upstreams: readonly RemoteUpstream[],
  ownUpstreams: number | undefined,
): readonly string[] {
  const [first] = upstreams;
  return [
    ...findingIf(
      first !== undefined && ownUpstreams === undefined,
      "upstreams",
      "not be set unless the backend is triton",
      `'${first?.grpc}'`,
    ),
    ...upstreams.flatMap(({ grpc, tls }, index) => [
      ...targetFindings(grpc, upstreams.slice(0, index), `upstreams.${index}.grpc`),
      ...findingIf(
        (ownUpstreams ?? 0) > 0 && tls !== undefined,
        `upstreams.${index}.tls`,
        "not be set beside a Triton server of this host, which has no TLS: a gateway has one TLS setting for all upstreams",
        `'${tls?.ca}'`,
      ),
      ...findingIf(
        JSON.stringify(tls) !== JSON.stringify(first?.tls),
        `upstreams.${index}.tls`,
        "be that of the first upstream: a gateway has one TLS setting for all upstreams",
        tls === undefined ? "nothing" : `'${tls.ca}'`,
      ),
      ...findingIf(
        tls !== undefined && (tls.cert === undefined) !== (tls.key === undefined),
        `upstreams.${index}.tls`,
        "have both cert and key, or neither",
        tls?.cert === undefined ? "only key" : "only cert",
      ),
    ]),
  ];
}

function targetFindings(
  grpc: string,
  earlier: readonly RemoteUpstream[],
  path: string,
): readonly string[] {
  const { host, port } = splitTarget(grpc);
  // a name in brackets, an IPv4 address out of range
  const isInvalid = grpc.startsWith("[")
    ? !isIPv6(host)
    : /^[\d.]+$/.test(host) && isIP(host) !== 4;
  if (!grpcTarget.test(grpc) || isInvalid || port < 1 || port > 65_535) {
    const must = "be host:port with a port of 1 to 65535, an IPv6 address in brackets";
    return [finding(path, must, `'${grpc}'`)];
  }
  const isLocal = /^(localhost|127\.[\d.]+|0\.0\.0\.0|::1?)$/i.test(host);
  return [
    ...findingIf(
      isLocal,
      path,
      "be an address of another host: in the container of the gateway, this is the container itself",
      `'${grpc}'`,
    ),
    ...findingIf(
      earlier.some((other) => other.grpc === grpc),
      path,
      "be listed once",
      `'${grpc}'`,
    ),
  ];
}
