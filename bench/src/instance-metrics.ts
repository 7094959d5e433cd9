import { embedPaths } from "../../inference-image/src/contract/embed-api.ts";
import type { RunningInstance } from "./embedded.ts";
import { loopback } from "./embedded-plan.ts";
import { type Metrics, parseMetrics } from "./prometheus.ts";
import type { ServiceUnderTest } from "./service-under-test.ts";

const timeoutMs = 30_000;

/** The metrics of one process: of one replica, where a Service would ask any of them. */
export async function metricsOf(
  service: ServiceUnderTest,
  { instance }: RunningInstance,
): Promise<Metrics> {
  const listener = instance.listeners.find(
    ({ protocol }) => protocol === "metrics" || protocol === "embed-http",
  );
  if (listener === undefined) throw new Error(`${instance.name} offers no metrics`);
  const url = `http://${loopback}:${listener.local}${embedPaths.metrics}`;
  const answer = await service.http.send(url, { timeoutMs });
  return parseMetrics(answer.body.toString("utf8"));
}
