import { type Dispatcher, EnvHttpProxyAgent } from "undici";

/** Variables of the environment, as `process.env` has them. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Sends requests through the proxy that the environment names, as other programs do: `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`,
 * in capitals or not. An address that begins with https is reached through a tunnel (CONNECT); one that begins with http is
 * asked of the proxy.
 *
 * @throws {Error} one line, when a variable is not the address of a proxy.
 */
export function openProxyDispatcher(env: Environment): Dispatcher {
  // an empty value means no proxy; an omitted one would be read from this process's environment
  return new EnvHttpProxyAgent({
    httpProxy: proxyOf(env, "http_proxy"),
    httpsProxy: proxyOf(env, "https_proxy"),
    noProxy: env.no_proxy ?? env.NO_PROXY ?? "",
    proxyTunnel: false,
  });
}

function proxyOf(env: Environment, lower: string): string {
  const name = env[lower] === undefined ? lower.toUpperCase() : lower;
  const value = env[name] ?? "";
  if (value === "") return "";
  // `host:port` parses, as a scheme without a host
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === "") {
    // what was given is not shown: a password may be in it
    throw new Error(`${name} must be like http://host:port or http://user:password@host:port`);
  }
  return value;
}
