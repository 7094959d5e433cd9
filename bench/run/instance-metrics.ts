import type { RunningInstance } from "../../artefact/simulation.ts";
import { loopback, type ServerRole } from "../../artefact/simulation-types.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import type { HttpClient, HttpRequest } from "./http-client.ts";
import { type Metrics, parseMetrics } from "./prometheus.ts";
import type { ServiceUnderTest } from "./service-under-test.ts";

/** Process with a metrics endpoint. */
export interface MetricsSource {
  readonly name: string;
  /** Kind of server, which determines the metric names. */
  readonly role: ServerRole;
  /** `http://host:port`; absent without a metrics endpoint. */
  readonly url?: string;
}

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

/** Metrics of one local process. */
export function metricsOf(service: ServiceUnderTest, running: RunningInstance): Promise<Metrics> {
  return readMetrics(service.http, metricsSource(running));
}
