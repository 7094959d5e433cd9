import type { Service } from "../../contract/environment.ts";
import { engineCacheMount } from "../../contract/model-config.ts";
import { goSeconds } from "../../contract/quantity.ts";
import type { ResourceChange, Values } from "../input/change.ts";
import { durationText, isOneShot, labelOf, volumeAt } from "../input/stack-facts.ts";
import { blockOf, blocksOf } from "../input/value-paths.ts";
import {
  dataLoss,
  type Impact,
  interruption,
  noOutage,
  outage,
  removals,
  type StackComparison,
} from "./impact-kinds.ts";

export function containerImpact(
  resource: ResourceChange,
  stack: StackComparison,
): Impact | undefined {
  const { address, action, before, after } = resource;
  const service = stack.before.services.get(address) ?? stack.after.services.get(address);
  const values = after ?? before;
  if (service === undefined) {
    if (isOneShot(values)) return oneShotImpact(resource);
    if (!removals.has(action)) return undefined;
    const name = String(before?.name ?? "");
    return interruption(
      action === "delete"
        ? `Container ${name} is stopped and removed.`
        : `Container ${name} is recreated.`,
    );
  }
  if (action === "create") return noOutage(`${service.name} is new: ${endpointsText(service)}.`);
  if (action === "update") return noOutage(`${service.name} is changed without a restart.`);
  const grace =
    numberOrUndefined(before?.destroy_grace_seconds) ?? numberOrUndefined(before?.stop_timeout);
  const stop =
    grace === undefined ? "" : ` (in-flight requests have ${durationText(grace)} to finish)`;
  const subject = `${service.name} (${endpointsText(service)})`;
  if (action === "delete")
    return outage(`${subject} is stopped and removed${stop}.`, [service.name]);
  const allowed = goSeconds(blockOf(after, "healthcheck").start_period);
  const start =
    allowed === undefined || allowed === 0
      ? "until it is ready again"
      : `until it is ready again (at most ${durationText(allowed)})`;
  const engines = rebuildsEngines(resource, stack)
    ? " It first rebuilds its TensorRT engines, which takes minutes per instance."
    : volumeAt(after, engineCacheMount) === undefined
      ? ""
      : " Its cached TensorRT engines are kept.";
  return outage(`${subject} is unavailable from its stop${stop} ${start}.${engines}`, [
    service.name,
  ]);
}

function endpointsText({ endpoints }: Service): string {
  const own = endpoints.filter(({ protocol }) => protocol !== "metrics");
  return (own.length > 0 ? own : endpoints)
    .map(({ url, name }) => (name === undefined ? url : `${name} ${url}`))
    .join(", ");
}

function oneShotImpact({ action, after }: ResourceChange): Impact | undefined {
  if (action === "delete")
    return noOutage("A finished one-shot container; nothing is running in it.");
  const service = labelOf(after, "clipstack.service");
  const subject = service === undefined ? "It" : service;
  return noOutage(`${subject} runs once and exits before any service is changed.`);
}

function numberOrUndefined(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

/** Returns whether a container starts with an empty engine cache. */
function rebuildsEngines({ before, after }: ResourceChange, { change }: StackComparison): boolean {
  const [oldVolume, newVolume] = [
    volumeAt(before, engineCacheMount),
    volumeAt(after, engineCacheMount),
  ];
  if (newVolume === undefined && after?.volumes !== undefined) return false;
  if (oldVolume !== newVolume) return oldVolume !== undefined;
  const volumes = change.resources.filter(
    ({ type, action }) => type === "docker_volume" && removals.has(action),
  );
  return volumes.some(({ before: values }) => values?.name === oldVolume);
}

/** Returns whether this project's constructs declare a container, so that the contents of its mounts are known. */
function isProjectContainer(container: Values): boolean {
  return labelOf(container, "clipstack.service") !== undefined;
}

export function volumeImpact(
  { action, before }: ResourceChange,
  stack: StackComparison,
): Impact | undefined {
  if (!removals.has(action)) return undefined;
  const name = before?.name;
  const mounts = [...stack.before.values.values()]
    .filter(({ type, values }) => type === "docker_container" && isProjectContainer(values))
    .flatMap(({ values }) => blocksOf(values.volumes).filter((it) => it.volume_name === name))
    .map(({ container_path: path }) => String(path));
  if (mounts.includes(engineCacheMount)) {
    const isBuilt = [...stack.after.values.values()].some(
      ({ type, values }) =>
        type === "docker_container" && volumeAt(values, engineCacheMount) !== undefined,
    );
    const again = " and rebuilt at the next start, which takes minutes per instance";
    return dataLoss(`The TensorRT engines in it are lost${isBuilt ? again : ""}.`);
  }
  if (mounts.some((path) => /^\/(weights|models\/[^/]+\/1)$/.test(path))) {
    return noOutage("Contains a copy of the weights, which the next deployment recreates.");
  }
  if (mounts.some((path) => path === "/configs" || /\/configs$/.test(path))) {
    return noOutage("Contains rendered model configurations, which the next deployment recreates.");
  }
  return dataLoss("Data on the volume is lost.");
}
