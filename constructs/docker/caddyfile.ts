import { z } from "zod";
import { text } from "../../contract/value-types.ts";

/** Certificates from an ACME server, and the configuration of Caddy, the reverse proxy that obtains and uses them. */

/** Schema of the setting `acme`. */
export const acme = z.strictObject({
  domain: text(
    "a domain name like 'embed.example.com'",
    /^(?=.{4,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/,
  ).describe(
    "Domain name of the host, which must resolve to it before the deployment: the ACME server connects to its ports 80 and 443.",
  ),
  email: text("an e-mail address", /^[\w.+-]+@[\w-]+(\.[\w-]+)+$/).describe(
    "Address of the account at the ACME server, for notices about certificates.",
  ),
  directory: text(
    "an https URL without a user or a password",
    /^https:\/\/[^\s/@?#{}"]+\/[^\s@{}"]*$/,
  )
    .optional()
    .describe("Directory URL of another ACME server. Default: Let's Encrypt."),
  ca: text("an absolute path on the host in a folder, without spaces", /^(\/[\w@+=,.-]+){2,}$/)
    .optional()
    .describe(
      "With `directory`: PEM file of the host with the authority of the ACME server itself, readable for user 1000.",
    ),
  image: text("an image name like 'name:1.2' or 'name@sha256:…'", /^[\w./:@-]+$/)
    .default("caddy:2.11.7")
    .describe("Image of Caddy 2."),
});
export type Acme = z.infer<typeof acme>;

/** Plain-text port of a container that the proxy makes reachable with TLS. */
export interface ProxyRoute {
  /** Port of the proxy, and of the host. */
  readonly port: number;
  /** `host:port` on the Docker network. */
  readonly upstream: string;
  readonly protocol: "http" | "grpc";
}

export interface CaddyfileOptions extends Omit<Acme, "image" | "ca"> {
  readonly routes: readonly ProxyRoute[];
  /** Port of the ACME server's HTTP challenge and of redirects to HTTPS. */
  readonly httpPort: number;
  readonly httpsPort: number;
  /** Port of the loopback interface that answers 200 over TLS once the certificate is valid. */
  readonly healthPort: number;
  /** Folder of the certificates. */
  readonly storage: string;
  /** PEM file in the container with the authority of the ACME server. */
  readonly ca?: string | undefined;
  /**
   * Issuer of the certificate. `internal`: an authority that Caddy creates in `storage`.
   *
   * @default "acme"
   */
  readonly issuer?: "acme" | "internal";
  /**
   * Address that the routes are bound to.
   *
   * @default - all
   */
  readonly bind?: string;
}

const schemes = { http: "http", grpc: "h2c" } as const;

/** The embed server closes connections that are idle for 75 s; the proxy must close them first. */
const keepalive = "keepalive 60s";
const transports = { http: [keepalive], grpc: [keepalive, "versions h2c 2"] } as const;

/** Renders the configuration of Caddy: HTTP/1.1 and HTTP/2 with TLS, and no administration port. */
export function renderCaddyfile(options: CaddyfileOptions): string {
  const { domain, email, directory, ca, routes, bind, issuer } = options;
  const site = (port: number, lines: readonly string[]) =>
    block(`https://${domain}:${port} `, lines);
  const blocks = [
    block("", [
      "admin off",
      `email ${email}`,
      ...(directory === undefined ? [] : [`acme_ca ${directory}`]),
      ...(ca === undefined ? [] : [`acme_ca_root ${ca}`]),
      ...(issuer === "internal" ? ["local_certs", "skip_install_trust"] : []),
      ...(bind === undefined ? [] : [`default_bind ${bind}`]),
      `http_port ${options.httpPort}`,
      `https_port ${options.httpsPort}`,
      `storage file_system ${options.storage}`,
      ...block("servers ", ["protocols h1 h2"]),
    ]),
    ...routes.map(({ port, upstream, protocol }) =>
      site(
        port,
        block(
          `reverse_proxy ${schemes[protocol]}://${upstream} `,
          block("transport http ", transports[protocol]),
        ),
      ),
    ),
    site(options.healthPort, ["bind 127.0.0.1", "respond 200"]),
  ];
  return blocks.map((lines) => `${lines.join("\n")}\n`).join("\n");
}

/** Lines of a directive with a block. */
function block(head: string, lines: readonly string[]): readonly string[] {
  return [`${head}{`, ...lines.map((line) => `\t${line}`), "}"];
}
