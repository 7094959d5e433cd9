import type { RunningInstance } from "../../artefact/simulation.ts";
import { loopback } from "../../artefact/simulation-types.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import type { HttpClient, HttpRequest } from "../requests/http-client.ts";
import type { MetricsSource } from "../requests/target-endpoint.ts";
import { type Metrics, parseMetrics } from "./prometheus.ts";

const timeoutMs = 30_000;

/** Metrics endpoint of one local replica. */
export function metricsSource({ instance }: RunningInstance): MetricsSource {
  const { name, role, listeners } = instance;
  const listener = listeners.find(
    ({ protocol }) => protocol === "metrics" || (protocol === "embed-http" && role !== "baseline"),
  );
  return { name, role, url: listener && `http://${loopback}:${listener.local}` };
}

export async function readMetrics(
  http: HttpClient,
  { name, url }: MetricsSource,
  options: Pick<HttpRequest, "timeoutMs" | "signal"> = {},
): Promise<Metrics> {
  if (url === undefined) throw new Error(`${name} has no metrics endpoint`);
  const response = await http.send(`${url}${embedPaths.metrics}`, { timeoutMs, ...options });
  if (response.status !== 200)
    throw new Error(`${name}: the metrics endpoint returned status ${response.status}`);
  return parseMetrics(response.body.toString("utf8"));
}
