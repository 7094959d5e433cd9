import type { Service } from "../contract/environment.ts";
import { goSeconds } from "../contract/quantity.ts";
import { tritonCommandOf } from "../contract/triton-flags.ts";
import type { DeclaredContainer } from "./declared-container.ts";
import type { VolumeContents } from "./volume-contents.ts";
import type { Probe, Volume, Workload } from "./workload.ts";

/** One `docker_container`, with references to values in the file resolved. */
export interface ContainerBlock {
  /** Terraform address, as in the plan. */
  readonly address: string;
  readonly declared: DeclaredContainer;
  /** Terraform address of the container's `docker_image`; absent if the container references none. */
  readonly image?: string;
}

/**
 * Workload of a service that runs in a container.
 *
 * @param volumeContents - Known contents of named volumes, by volume name.
 */
export function containerWorkload(
  service: Service,
  { address, declared }: ContainerBlock,
  volumeContents: ReadonlyMap<string, VolumeContents>,
): Workload {
  return {
    service,
    address,
    kind: "container",
    name: declared.name,
    command: programOf([...declared.entrypoint, ...declared.command]),
    env: Object.fromEntries(declared.env.map(splitAssignment)),
    published: declared.ports.map(({ internal, external }) => ({
      internal,
      external: external ?? internal,
    })),
    volumes: volumesOf(declared, volumeContents),
    probes: declared.healthcheck.map(healthProbe),
    replicas: 1,
    ...(declared.memory > 0 && { limits: { memory: `${declared.memory}Mi` } }),
    graceSeconds: declared.destroy_grace_seconds ?? declared.stop_timeout ?? 10,
    aliases: declared.networks_advanced.flatMap((network) => network.aliases),
    networks: declared.networks_advanced.map((network) => network.name),
    inCluster: [],
    faults: [],
  };
}

/** Command without the program that starts a Triton server. */
function programOf(command: readonly string[]): readonly string[] {
  const triton = tritonCommandOf(command);
  return triton.length > 0 ? triton : command;
}

function volumesOf(
  { volumes, mounts }: DeclaredContainer,
  volumeContents: ReadonlyMap<string, VolumeContents>,
): readonly Volume[] {
  return [
    ...volumes.map(({ container_path, host_path, volume_name = "" }): Volume => {
      const contents = volumeContents.get(volume_name);
      return { containerPath: container_path, hostPath: host_path ?? contents?.folder, contents };
    }),
    ...mounts
      .filter((mount) => mount.type !== "tmpfs")
      .map((mount) => ({
        containerPath: mount.target,
        hostPath: mount.type === "bind" ? mount.source : undefined,
      })),
  ];
}

function healthProbe(check: DeclaredContainer["healthcheck"][number]): Probe {
  const command = check.test.join(" ");
  // https://docs.docker.com/reference/dockerfile/#healthcheck: defaults of 30 s and 3 retries
  const budgetSeconds =
    (goSeconds(check.start_period) ?? 0) +
    (goSeconds(check.interval) ?? 30) * ((check.retries ?? 3) + 1);
  return { kind: "health check", http: urlIn(command), budgetSeconds, text: command };
}

function splitAssignment(line: string): readonly [string, string] {
  const equals = line.indexOf("=");
  return [line.slice(0, equals), line.slice(equals + 1)];
}

/** URL of the container itself that a health check's command requests. */
function urlIn(command: string): Probe["http"] {
  const match =
    /https?:\/\/(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?::(\d+))?(\/[^\s"'`)]*)?/.exec(
      command,
    );
  return match === null ? undefined : { port: Number(match[1] ?? 80), path: match[2] ?? "/" };
}
