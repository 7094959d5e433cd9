import type { Construct } from "constructs";
import type { EmbedServer } from "../../constructs/docker/embed-server.ts";
import type { GpuHost } from "../../constructs/docker/gpu-host.ts";
import { Monitoring } from "../../constructs/docker/monitoring.ts";
import type { TritonServer } from "../../constructs/docker/triton-server.ts";
import { packagedPath } from "../../model-tools/files/folders.ts";
import type { SingleGpuSettings } from "../settings/single-gpu-settings.ts";

const defaultSloMilliseconds = 250;

interface MonitoredServices {
  readonly host: GpuHost;
  readonly embed: EmbedServer | undefined;
  readonly tritons: readonly TritonServer[];
}

/** Adds the monitoring of the services if the settings enable it. Called after all services, whose GPUs it also monitors. */
export function addMonitoring(
  scope: Construct,
  services: MonitoredServices,
  { monitoring, review }: Pick<SingleGpuSettings, "monitoring" | "review">,
): Monitoring | undefined {
  const { enabled, grafana, images, ...props } = monitoring;
  if (!enabled) return undefined;
  return new Monitoring(scope, "monitoring", {
    ...services,
    ...props,
    images: { ...images, grafana: grafana ? images.grafana : undefined },
    latencySloMilliseconds:
      props.latencySloMilliseconds ?? review.p99GoalMilliseconds ?? defaultSloMilliseconds,
    dashboards: packagedPath("helm/clipstack/dashboards"),
  });
}
