/**
 * Health check of the images: exit code 0 if every probed server is ready.
 *
 * `node healthcheck.js` probes the server of this container, in either role; `node healthcheck.js URL…` probes the URLs. It
 * loads only Node's HTTP client, because it runs every few seconds next to a busy server.
 */
import { readFileSync } from "node:fs";
import { get as getHttp } from "node:http";
import { get as getHttps } from "node:https";
import { embedPaths } from "../contract/embed-routes.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import { embedPort, tritonPorts } from "../contract/ports.ts";

/** Shorter than the timeout of the image's health check, in milliseconds. */
const timeoutMs = 3_000;

const urls = process.argv.slice(2);
const results = await Promise.all((urls.length > 0 ? urls : [ownUrl()]).map(probe));
const failures = results.filter((result) => result !== undefined);
if (failures.length > 0) console.error(failures.join("\n"));
process.exit(failures.length > 0 ? 1 : 0);

/** Readiness URL of the server in this container, derived from the command line of process 1. */
function ownUrl(): string {
  const words = readFileSync("/proc/1/cmdline", "utf8").split("\0");
  const triton = words.indexOf("tritonserver");
  if (triton >= 0) {
    const options = words.slice(triton + 1);
    const host = optionOf(options, "--http-address");
    const port = optionOf(options, "--http-port") ?? tritonPorts.http;
    return `http://${reachable(host)}:${port}${oipPaths.ready}`;
  }
  const { HOST, PORT, TLS_CERT_FILE } = process.env;
  const scheme = TLS_CERT_FILE ? "https" : "http";
  return `${scheme}://${reachable(HOST)}:${PORT || embedPort}${embedPaths.readyz}`;
}

/** `--name=value` or `--name value`. */
function optionOf(words: readonly string[], name: string): string | undefined {
  const index = words.findIndex((word) => word === name || word.startsWith(`${name}=`));
  const word = words[index];
  return word === name ? words[index + 1] : word?.slice(name.length + 1);
}

/** Address at which this container reaches a server that listens on `host`. */
function reachable(host: string | undefined): string {
  if (!host || host === "0.0.0.0") return "127.0.0.1";
  if (host === "::") return "[::1]";
  return host.includes(":") ? `[${host}]` : host;
}

/** Probes a URL. Returns the reason in one line if it is not ready. */
function probe(url: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    // the certificate is for the public name, not for this address
    const options = { timeout: timeoutMs, agent: false, rejectUnauthorized: false } as const;
    const get = url.startsWith("https:") ? getHttps : getHttp;
    const request = get(url, options, (response) => {
      response.resume();
      resolve(response.statusCode === 200 ? undefined : `${url}: status ${response.statusCode}`);
    });
    request.on("timeout", () => request.destroy(new Error(`no response in ${timeoutMs} ms`)));
    request.on("error", (error) => resolve(`${url}: ${error.message}`));
  });
}
