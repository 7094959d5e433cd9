import type { Service } from "../../contract/environment.ts";
import { engineCacheMount } from "../../contract/model-config.ts";
import type { ResourceChange, Values } from "../input/change.ts";
import { durationText, isOneShot, labelOf, secondsOf, volumeAt } from "../input/stack-facts.ts";
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
      action === "delete" ? `Container ${name} ends.` : `Container ${name} is started anew.`,
    );
  }
  if (action === "create") return noOutage(`${service.name} is new: ${endpointsText(service)}.`);
  if (action === "update") return noOutage(`${service.name} is changed while it runs.`);
  const grace =
    numberOrUndefined(before?.destroy_grace_seconds) ?? numberOrUndefined(before?.stop_timeout);
  const stop = grace === undefined ? "" : ` (accepted requests have ${durationText(grace)})`;
  const who = `${service.name} (${endpointsText(service)})`;
  if (action === "delete") return outage(`${who} is gone${stop}.`, [service.name]);
  const allowed = secondsOf(blockOf(after, "healthcheck").start_period);
  const start =
    allowed === undefined || allowed === 0
      ? "until it is ready again"
      : `until it is ready again, for which it has ${durationText(allowed)}`;
  const engines = rebuildsEngines(resource, stack)
    ? " TensorRT engines are built anew before it is ready, which takes minutes for each instance."
    : volumeAt(after, engineCacheMount) === undefined
      ? ""
      : " Its TensorRT engines are still there.";
  return outage(`${who} does not answer from its stop${stop} ${start}.${engines}`, [service.name]);
}

function endpointsText({ endpoints }: Service): string {
  const own = endpoints.filter(({ protocol }) => protocol !== "metrics");
  return (own.length > 0 ? own : endpoints)
    .map(({ url, name }) => (name === undefined ? url : `${name} ${url}`))
    .join(", ");
}

function oneShotImpact({ action, after }: ResourceChange): Impact | undefined {
  if (action === "delete") return noOutage("It ended long ago: nothing runs in it.");
  const service = labelOf(after, "clipstack.service");
  const what = service === undefined ? "It" : `${service}: it`;
  return noOutage(`${what} runs once, and ends before a service is touched.`);
}

function numberOrUndefined(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

/** Whether a container finds no engines of its own any more. */
function rebuildsEngines({ before, after }: ResourceChange, { change }: StackComparison): boolean {
  const [was, is] = [volumeAt(before, engineCacheMount), volumeAt(after, engineCacheMount)];
  if (is === undefined && after?.volumes !== undefined) return false;
  if (was !== is) return was !== undefined;
  const volumes = change.resources.filter(
    ({ type, action }) => type === "docker_volume" && removals.has(action),
  );
  return volumes.some(({ before: values }) => values?.name === was);
}

/** Whether this project's constructs declare a container: what its mounts hold is known then. */
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
    .map(({ container_path: place }) => String(place));
  if (mounts.includes(engineCacheMount)) {
    const isBuilt = [...stack.after.values.values()].some(
      ({ type, values }) =>
        type === "docker_container" && volumeAt(values, engineCacheMount) !== undefined,
    );
    const again = ": the next start builds them again, which takes minutes for each instance";
    return dataLoss(`The TensorRT engines in it are lost${isBuilt ? again : ""}.`);
  }
  if (mounts.some((place) => /^\/(weights|models\/[^/]+\/1)$/.test(place))) {
    return noOutage("The weights in it are a copy, which a deployment makes.");
  }
  if (mounts.some((place) => place === "/configs" || /\/configs$/.test(place))) {
    return noOutage("The model configuration in it is derived: a deployment writes it.");
  }
  return dataLoss("What is in the volume is lost.");
}
