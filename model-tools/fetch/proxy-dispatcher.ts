import { type Dispatcher, EnvHttpProxyAgent } from "undici";

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Sends requests through the proxy of `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in upper or lower case. Requests for https URLs
 * use a tunnel (CONNECT); requests for http URLs are forwarded by the proxy.
 *
 * @throws {Error} with one line if a variable is not the address of a proxy
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
    // the value is not printed, because it may contain a password
    throw new Error(`${name} must be like http://host:port or http://user:password@host:port`);
  }
  return value;
}
