import type { IConstruct } from "constructs";
import type {
  Container,
  ContainerConfig,
  ContainerHealthcheck,
} from "#providers/docker/lib/container/index.js";
import { check } from "../checks/findings.ts";
import { plaintextLabel } from "../checks/ports.ts";
import { stopSeconds, stopTimeFindings } from "../checks/stop-times.ts";
import { TerraformStack } from "../terraform/cdktf.ts";

/** User and group of the servers in their images: Triton's `triton-server`, Node's `node`. */
export const serverUser = "1000:1000";

/** Defaults of every server container: no privileges, read-only file system, rotated logs. */
export const hardened = {
  user: serverUser,
  readOnly: true,
  capabilities: { drop: ["ALL"] },
  securityOpts: ["no-new-privileges:true"],
  restart: "unless-stopped",
  logDriver: "json-file",
  logOpts: { "max-file": "3", "max-size": "10m" },
} as const satisfies Partial<ContainerConfig>;

/**
 * Docker's init as process 1. Node as process 1 ignores signals while it starts, so a stop would wait for the kill; Triton as process 1
 * does not reap processes whose parents have ended.
 */
export const containerInit = { init: true } as const satisfies Partial<ContainerConfig>;

/** Labels with the environment and service of a container, which `clipstack doctor` reads. */
export function labels(
  of: IConstruct,
  service: string,
  more: Readonly<Record<string, string>> = {},
): { label: string; value: string }[] {
  const all = { environment: TerraformStack.of(of).node.id, service, ...more };
  return Object.entries(all).map(([name, value]) => ({ label: `clipstack.${name}`, value }));
}

/** Label that tells the review that the settings allow a port on all interfaces without TLS; others do not synthesize. */
export function plaintextLabels(
  expose: "loopback" | "all-interfaces" = "loopback",
  scheme: "http" | "https" = "http",
): Readonly<Record<string, string>> {
  return expose === "loopback" || scheme === "https" ? {} : { [plaintextLabel]: "true" };
}

/** `/tmp` in memory, for a container with a read-only file system. */
export function tmpfs(sizeMiB: number): Readonly<Record<string, string>> {
  return { "/tmp": `rw,nosuid,nodev,size=${sizeMiB}m` };
}

/** Stop times of a container, for the engine and for Terraform. */
export function stopAfter(graceSeconds: number) {
  const seconds = stopSeconds(graceSeconds);
  return { stopTimeout: seconds, destroyGraceSeconds: seconds };
}

/** Adds a check that an override does not kill the container before its grace period is over. */
export function checkStopTimes(container: Container, graceSeconds: number): void {
  check(container, () => [
    ...stopTimeFindings("stopTimeout", container.stopTimeoutInput, graceSeconds),
    ...stopTimeFindings("destroyGraceSeconds", container.destroyGraceSecondsInput, graceSeconds),
  ]);
}

/** Health check command of the embed image, which contains no curl. */
export function healthcheckOf(url: string): readonly string[] {
  return ["CMD", "node", "/app/dist/healthcheck.js", url];
}

/** Health check command of images with the program `wget`: Prometheus, Grafana, Caddy. */
export function wgetTest(url: string, ...options: readonly string[]): readonly string[] {
  return ["CMD", "wget", "-q", "-O", "/dev/null", ...options, url];
}

const probe = { intervalSeconds: 5, timeoutSeconds: 4, retries: 6 } as const;

/** Health check of a container that needs up to `startSeconds` to start. */
export function healthcheck(test: readonly string[], startSeconds: number): ContainerHealthcheck {
  return {
    test: [...test],
    interval: goDuration(probe.intervalSeconds),
    timeout: goDuration(probe.timeoutSeconds),
    retries: probe.retries,
    startPeriod: goDuration(startSeconds),
  };
}

/** Maximum time in seconds until Docker reports a container with these probes as unhealthy, one more probe included. */
export function verdictSeconds(startSeconds: number): number {
  return startSeconds + (probe.retries + 1) * (probe.intervalSeconds + probe.timeoutSeconds);
}

/**
 * Seconds as Go prints a duration: `1m30s`, `20m0s`. The provider reads it back in this form; any other form
 * would replace the container at every apply.
 */
export function goDuration(seconds: number): string {
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  return `${hours > 0 ? `${hours}h` : ""}${hours > 0 || minutes > 0 ? `${minutes}m` : ""}${seconds % 60}s`;
}

/** `NAME=value`, sorted, as the provider keeps them. */
export function environmentList(env: Readonly<Record<string, string>>): string[] {
  return Object.entries(env)
    .map(([name, value]) => `${name}=${value}`)
    .sort();
}
