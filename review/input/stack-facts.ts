import {
  type Environment,
  environment as environmentSchema,
  type Service,
} from "../../contract/environment.ts";
import type { ResourceChange, StackChange, Values } from "./change.ts";
import { asTyped, baseType, isExaminedType } from "./resource-types.ts";
import { blockOf, blocksOf } from "./value-paths.ts";

/** Resources and services of a stack at one point in time. */
export interface StackFacts {
  readonly environment?: Environment;
  /** Existing resources, by address. */
  readonly values: ReadonlyMap<string, { readonly type: string; readonly values: Values }>;
  /** Service that a resource belongs to, by resource address. */
  readonly services: ReadonlyMap<string, Service>;
}

export function factsOf({ environmentAfter, resources }: StackChange): StackFacts {
  const environment = environmentSchema.safeParse(environmentAfter).data;
  const services = (environment?.services ?? []).flatMap((service) =>
    Object.values(service.resources).map((address) => [address, service] as const),
  );
  const values = resources.flatMap(({ address, type, mode, after, deposed }) =>
    deposed === undefined && after !== undefined && mode === "managed"
      ? [[address, asTyped(type, after)] as const]
      : [],
  );
  return { environment, values: new Map(values), services: new Map(services) };
}

/** Returns whether a container is one-shot: the apply blocks until it exits. `restart` is no indicator because Docker's default is `no`. */
export function isOneShot(container: Values | undefined): boolean {
  return container?.must_run === false && container.attach === true;
}

/** Returns whether an object is removed from the state without being destroyed, also if another one replaces it. */
export function isForgotten({ action, actions }: ResourceChange): boolean {
  return action === "forget" || actions?.includes("forget") === true;
}

/** Returns whether a release uses this project's chart. */
export function isOwnChart(release: Values | undefined): boolean {
  return /(^|\/)clipstack$/.test(String(release?.chart ?? ""));
}

/** Lists the first items and the number of the others. */
export function few(all: readonly string[]): string {
  return all.length <= 5
    ? all.join(", ")
    : `${all.slice(0, 4).join(", ")} and ${all.length - 4} more`;
}

/** Address without instance key: `docker_container.weights_check` for `docker_container.weights_check["09000a0fb7d8"]`. */
export function withoutKey(address: string): string {
  return address.replace(/\[[^\]]*\]$/, "");
}

/** Construct path, also of an address with the hash of CDKTF; otherwise the name, or the address of types that this project does not use. */
export function titleOf({
  constructPath,
  address,
  type,
}: Pick<ResourceChange, "constructPath" | "address" | "type">): string {
  if (constructPath !== undefined) return constructPath.split("/").slice(1).join("/");
  const [, name = "", hash] = /([^.]*?)(_[0-9A-F]{8})?$/s.exec(withoutKey(address)) ?? [];
  if (hash !== undefined) return name.replaceAll("_", "/");
  return isExaminedType(baseType(type)) && !address.startsWith("module.") ? name : address;
}

export function labelOf(values: Values | undefined, name: string): string | undefined {
  const label = blocksOf(values?.labels).find((it) => it.label === name)?.value;
  return typeof label === "string" ? label : undefined;
}

/** Volume mounted at a path of a container. */
export function volumeAt(values: Values | undefined, path: string): string | undefined {
  const volume = blocksOf(values?.volumes).find((it) => it.container_path === path);
  const name = volume?.volume_name ?? volume?.host_path;
  return typeof name === "string" && name !== "" ? name : undefined;
}

/** Formats a duration: `35 s`, `2 min`, `7 min 30 s`. */
export function durationText(seconds: number): string {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = Math.round(seconds - 60 * minutes);
  return rest === 0 ? `${minutes} min` : `${minutes} min ${rest} s`;
}

export function objectName(values: Values | undefined): {
  readonly namespace: string;
  readonly name: string;
} {
  const { name, namespace } = blockOf(values, "metadata");
  return { name: String(name ?? ""), namespace: String(namespace ?? "default") };
}
