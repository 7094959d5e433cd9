import { InvalidArgumentError } from "commander";
import { endpointNames } from "../../contract/environment.ts";
import type { AddressesSource } from "../../target/open/addresses.ts";

/** Parsers of `--url` and `--metrics-url`. */

export function endpointAddress(text: string): AddressesSource["endpoints"][number] {
  const [name = "", url = ""] = splitAssignment(text);
  const endpoint = endpointNames.find((known) => known === name);
  if (endpoint === undefined) {
    throw new InvalidArgumentError(
      `It must be ENDPOINT=ADDRESS, with an endpoint of ${endpointNames.join(", ")}.`,
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
