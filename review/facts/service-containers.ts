import type { Service, ServiceKind } from "../../contract/environment.ts";
import { tritonCommandOf } from "../../contract/triton-flags.ts";
import type { ResourceChange, StackChange, Values } from "../input/change.ts";
import { isOneShot, withoutKey } from "../input/stack-facts.ts";
import { cached } from "./cached.ts";
import { blocks, text, texts } from "./values.ts";
import { environmentOf, resourcesOf } from "./workloads.ts";

/** Long-running Docker container. */
export interface ServiceContainer {
  readonly resource: ResourceChange;
  readonly address: string;
  readonly values: Values;
  /** Its service in the output `environment`. */
  readonly service: Service | undefined;
  readonly kind: ServiceKind | "other";
  /** Environment variables; `undefined` for values known only to Terraform. */
  readonly env: ReadonlyMap<string, string | undefined>;
  readonly command: readonly string[];
}

/** Docker containers except one-shot ones. */
export const serviceContainers = cached((change: StackChange): readonly ServiceContainer[] => {
  const services = environmentOf(change)?.services ?? [];
  return resourcesOf(change, "docker_container")
    .filter(({ after }) => !isOneShot(after))
    .map((resource) => {
      const values = resource.after ?? {};
      const service = services.find(
        ({ resources }) => resources.container === withoutKey(resource.address),
      );
      const command = texts(values.command);
      return {
        resource,
        address: resource.address,
        values,
        service,
        kind: service?.kind ?? (tritonCommandOf(command).length > 0 ? "triton" : "other"),
        env: environmentVariables(values.env),
        command,
      };
    });
});

export function tritonContainers(change: StackChange): readonly ServiceContainer[] {
  return serviceContainers(change).filter(({ kind }) => kind === "triton");
}

/** Indices or UUIDs of the GPUs visible in a container; `all` means all GPUs of the environment. */
export function visibleGpus(change: StackChange, { env }: ServiceContainer): readonly string[] {
  const devices = env.get("NVIDIA_VISIBLE_DEVICES") ?? "";
  if (devices === "all") {
    const count = environmentOf(change)?.gpu?.count ?? 1;
    return Array.from({ length: count }, (_, index) => String(index));
  }
  return devices.split(",").filter((device) => !["", "none", "void"].includes(device));
}

/** `NAME=value` lines of a container. */
export function environmentVariables(env: unknown): ReadonlyMap<string, string | undefined> {
  return new Map(
    texts(env).map((line) => {
      const equals = line.indexOf("=");
      return [line.slice(0, equals), text(line.slice(equals + 1))];
    }),
  );
}

/** Value of `--name=value` or `--name value` in a command line; `true` for an option without value. */
export function option(command: readonly string[], name: string): string | true | undefined {
  const index = command.findIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`));
  const word = command[index];
  if (word === undefined) return undefined;
  if (word.includes("=")) return word.slice(word.indexOf("=") + 1);
  const next = command[index + 1];
  return next === undefined || next.startsWith("--") ? true : next;
}

/** Values of `--name=value`, which may be given several times. */
export function options(command: readonly string[], name: string): readonly string[] {
  const start = `--${name}=`;
  return command.flatMap((word) => (word.startsWith(start) ? [word.slice(start.length)] : []));
}

export interface PublishedPort {
  readonly internal: unknown;
  readonly external: unknown;
  /** Bind address, by default `0.0.0.0`. */
  readonly ip: string;
}

export function publishedPorts(values: Values): readonly PublishedPort[] {
  return blocks(values.ports).map(({ internal, external, ip }) => ({
    internal,
    external,
    ip: typeof ip === "string" && ip !== "" ? ip : "0.0.0.0",
  }));
}

/** Address of a published port, for messages. */
export function hostAddress({ ip, external }: PublishedPort): string {
  return `${ip}:${external === undefined || external === null ? "(a free port)" : String(external)}`;
}

export function volumesOf(values: Values): readonly {
  readonly name: unknown;
  readonly path: string;
  readonly hostPath: unknown;
}[] {
  return blocks(values.volumes).map(({ volume_name, container_path, host_path }) => ({
    name: volume_name,
    path: String(container_path ?? ""),
    hostPath: host_path,
  }));
}
