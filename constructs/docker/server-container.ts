import type { Construct } from "constructs";
import { Container, type ContainerConfig } from "#providers/docker/lib/container/index.js";
import { objectName } from "../terraform/names.ts";
import {
  checkStopTimes,
  hardened,
  healthcheck,
  stopAfter,
  verdictSeconds,
} from "./container-defaults.ts";
import type { GpuHost } from "./gpu-host.ts";
import { HealthGate } from "./health-gate.ts";

export interface ServerContainerProps
  extends Omit<Partial<ContainerConfig>, "healthcheck" | "image"> {
  readonly image: string;
  /** Command of the health check. */
  readonly test: readonly string[];
  /** Maximum time until the server is healthy. */
  readonly startSeconds: number;
  /** Time limit for accepted requests when the server stops. */
  readonly graceSeconds: number;
}

/** Adds the container of a server to its construct, and a gate that is passed once it is healthy. */
export function serverContainer(
  scope: Construct,
  host: GpuHost,
  { test, startSeconds, graceSeconds, ...config }: ServerContainerProps,
): { readonly container: Container; readonly ready: HealthGate } {
  const container = new Container(scope, "container", {
    ...hardened,
    provider: host.services,
    name: objectName(scope),
    networksAdvanced: [{ name: host.network.name }],
    healthcheck: healthcheck(test, startSeconds),
    ...stopAfter(graceSeconds),
    ...config,
  });
  checkStopTimes(container, graceSeconds);
  const ready = new HealthGate(scope, "ready", {
    container,
    docker: host.docker,
    command: host.command,
    timeoutSeconds: verdictSeconds(startSeconds),
  });
  return { container, ready };
}
