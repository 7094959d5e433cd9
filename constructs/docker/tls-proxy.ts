import { Construct } from "constructs";
import type { Container } from "#providers/docker/lib/container/index.js";
import { Volume } from "#providers/docker/lib/volume/index.js";
import { tlsProxyContainerPorts, tlsProxyPorts } from "../../contract/ports.ts";
import { limitsOf, proxyMemoryMiB } from "../checks/container-limits.ts";
import { check, findingIf } from "../checks/findings.ts";
import { Lazy } from "../terraform/cdktf.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import { type Acme, type ProxyRoute, renderCaddyfile } from "./caddyfile.ts";
import { containerInit, environmentList, labels, tmpfs, wgetTest } from "./container-defaults.ts";
import { hostFileMounts } from "./embed-access.ts";
import type { GpuHost } from "./gpu-host.ts";
import { bindAddress, type HostUse } from "./host-plan.ts";
import { giveToServerUser } from "./one-shot.ts";
import { serverContainer } from "./server-container.ts";

export interface TlsProxyProps {
  readonly host: GpuHost;
  /** Certificate, as in the props of the host. */
  readonly acme: Acme;
}

const storage = "/data";
const tmpMiB = 16;
/** Maximum time until the ACME server has issued the first certificate. */
const certificateSeconds = 180;
const graceSeconds = 30;

/** The provider cannot upload a file to a container with a read-only root file system. */
const start =
  'printf "%s" "$CADDYFILE" > /tmp/Caddyfile && exec caddy run --config /tmp/Caddyfile --adapter caddyfile';

/**
 * Caddy in a container: obtains a certificate from an ACME server, keeps it in a volume, and forwards HTTPS to the services of the
 * host. It is healthy once the certificate is there; otherwise the deployment fails and prints the log, which has the reason.
 */
export class TlsProxy extends Construct {
  readonly container: Container;

  constructor(scope: Construct, id: string, { host, acme }: TlsProxyProps) {
    super(scope, id);

    const { domain, ca } = acme;
    const routes = host.proxyRoutes();
    const { mounts, paths } = hostFileMounts(
      ca === undefined ? [] : [{ prop: "acme.ca", path: ca }],
    );
    const [caPath] = paths;
    const service = nameInStack(this);
    const image = host.image("proxy", { source: "pull", name: acme.image });
    const volume = new Volume(this, "certificates", {
      provider: host.provider,
      name: `${objectName(this)}-certificates`,
    });
    const { http, https, health } = tlsProxyContainerPorts;
    giveToServerUser(this, {
      host,
      image,
      service: `${service}-certificates`,
      volumeName: volume.name,
      mount: storage,
      versions: [],
    });
    host.require(hostUse(service, acme), this);
    check(this, () =>
      findingIf(
        routes.length === 0,
        "acme",
        "be set only with a service that has expose: all-interfaces",
        `'${domain}'`,
      ),
    );
    const options = { httpPort: http, httpsPort: https, healthPort: health, storage };
    const { container } = serverContainer(this, host, {
      ...containerInit,
      ...limitsOf("proxy", proxyMemoryMiB, host.cores),
      // without effect; the program in the image has this capability, and could not be executed otherwise
      capabilities: { add: ["CAP_NET_BIND_SERVICE"], drop: ["ALL"] },
      image: image.imageId,
      labels: labels(this, service),
      entrypoint: ["sh", "-c", start],
      env: Lazy.listValue({
        produce: () =>
          environmentList({
            CADDYFILE: renderCaddyfile({ ...acme, ...options, routes, ca: caPath }),
            HOME: "/tmp",
            XDG_CONFIG_HOME: "/tmp",
          }),
      }),
      tmpfs: tmpfs(tmpMiB),
      ports: Lazy.anyValue({ produce: () => publishedPorts(routes) }),
      // the health check requires the certificate of this name
      host: [{ host: domain, ip: "127.0.0.1" }],
      volumes: [{ volumeName: volume.name, containerPath: storage }, ...mounts],
      test: wgetTest(`https://${domain}:${health}/`, "--no-check-certificate"),
      startSeconds: certificateSeconds,
      graceSeconds,
    });
    this.container = container;
  }
}

function publishedPorts(routes: readonly ProxyRoute[]) {
  const { http, https } = tlsProxyContainerPorts;
  const own = [
    { internal: http, external: tlsProxyPorts.http },
    { internal: https, external: tlsProxyPorts.https },
  ];
  const others = routes
    .filter(({ port }) => port !== https)
    .map(({ port }) => ({ internal: port, external: port }));
  return [...own, ...others].map((port) => ({ ...port, ip: bindAddress("all-interfaces") }));
}

/** Adds the proxy of a host with `acme`. */
export function tlsProxy(scope: Construct, host: GpuHost): void {
  if (host.acme !== undefined) new TlsProxy(scope, "tls-proxy", { host, acme: host.acme });
}

function hostUse(service: string, { ca }: Acme): HostUse {
  const { http, https } = tlsProxyPorts;
  return {
    ports: [http, https].map((port) => ({ service, prop: "acme", port, expose: "all-interfaces" })),
    memory: { service, miB: proxyMemoryMiB },
    ...(ca !== undefined && {
      files: [{ path: ca, on: "host", what: "authority of the ACME server" }],
    }),
  };
}
