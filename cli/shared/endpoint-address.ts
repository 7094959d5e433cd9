import { InvalidArgumentError } from "commander";
import { serviceEndpoints } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import type { AddressesSource } from "../../target/open/addresses.ts";

/** Parsers of `--url` and `--metrics-url`. */

/** Address of an endpoint, or of a server whose protocol is detected. */
export type Address = AddressesSource["endpoints"][number] | { readonly url: string };

/** Parses `ENDPOINT=ADDRESS` or the address of a server. */
export function endpointAddress(text: string): Address {
  if (/^https?:/.test(text)) return { url: httpAddress(text, "an embedding server") };
  const [name = "", url = ""] = splitAssignment(text);
  const endpoint = serviceEndpoints.find((known) => known === name);
  if (endpoint === undefined) {
    throw new InvalidArgumentError(
      `It must be ENDPOINT=ADDRESS, with an endpoint of ${serviceEndpoints.join(", ")}, or the address of an embedding server.`,
    );
  }
  if (endpoint.endsWith("-grpc")) {
    if (!/^(https:\/\/)?[^\s/]+:\d{1,5}$/.test(url)) {
      throw new InvalidArgumentError(
        `The address of ${endpoint} must be host:port, or https://host:port with TLS, got '${url}'.`,
      );
    }
    return { endpoint, url };
  }
  return { endpoint, url: httpAddress(url, endpoint) };
}

/**
 * Addresses of servers; undefined if endpoints are named.
 *
 * @throws {UserError} if both kinds are given.
 */
export function serversOf(addresses: readonly Address[]): readonly string[] | undefined {
  const servers = addresses.filter((address) => !("endpoint" in address));
  if (servers.length === 0) return undefined;
  if (servers.length === addresses.length) return servers.map(({ url }) => url);
  throw new UserError("--url must be addresses of servers or ENDPOINT=ADDRESS, got both");
}

export const endpointsOf = (addresses: readonly Address[]) =>
  addresses.filter((address) => "endpoint" in address);

export function splitAssignment(text: string): readonly string[] {
  const at = text.indexOf("=");
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

export function httpAddress(text: string, target: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isWeb = url?.protocol === "http:" || url?.protocol === "https:";
  if (!isWeb || url.pathname + url.search + url.hash !== "/") {
    throw new InvalidArgumentError(
      `The address of ${target} must be http://host:port or https://host:port, without a path, got '${text}'.`,
    );
  }
  return url.origin;
}
