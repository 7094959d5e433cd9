import { at, isSet, text } from "../facts/values.ts";
import { environmentBefore, environmentOf } from "../facts/workloads.ts";
import type { ResourceChange, StackChange } from "../input/change.ts";
import { asTyped } from "../input/resource-types.ts";
import { isForgotten, isOneShot, withoutKey } from "../input/stack-facts.ts";
import { holdsData } from "../input/stored-data.ts";
import { canonical, isObject } from "../input/value-paths.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

/** Destroyed or replaced resources of some types; by default unless the whole stack is destroyed. */
export function removed(
  types: RegExp | ((resource: ResourceChange) => boolean),
  { always = false } = {},
) {
  const matches = types instanceof RegExp ? ({ type }: ResourceChange) => types.test(type) : types;
  const typed = (it: ResourceChange) => {
    const { type, values } = asTyped(it.type, it.before ?? {});
    return { ...it, type, before: values };
  };
  return (change: StackChange): readonly ResourceChange[] =>
    !always && isDestroyed(change)
      ? []
      : change.resources
          .map(typed)
          .filter(
            (it) =>
              (it.action === "delete" || it.action === "replace") &&
              !isForgotten(it) &&
              it.mode === "managed" &&
              matches(it),
          );
}

function removalText(action: ResourceChange["action"]): string {
  return action === "replace" ? "destroyed and recreated" : "destroyed";
}

function isDestroyed({ resources }: StackChange): boolean {
  const managed = resources.filter(({ mode }) => mode === "managed");
  return managed.length > 0 && managed.every(({ action }) => action === "delete");
}

export const changeRules: readonly ReviewRule[] = [
  rule({
    id: "renamed-resource",
    severity: "error",
    fix: "keep the construct id, or add a moved block: stack.addOverride('moved', [{ from, to }]) with both addresses",
    *find({ resources }) {
      const created = new Map<string, ResourceChange>();
      for (const it of resources) {
        const identity = identityOf(it, it.after);
        if (it.action === "create" && it.movedFrom === undefined && identity !== undefined) {
          created.set(identity, it);
        }
      }
      for (const it of resources) {
        const identity = it.action === "delete" ? identityOf(it, it.before) : undefined;
        const twin = identity === undefined ? undefined : created.get(identity);
        // instances of one `for_each` are independent
        if (twin === undefined || withoutKey(twin.address) === withoutKey(it.address)) continue;
        yield {
          address: it.address,
          message: `is destroyed and ${twin.address} is created with the same name: the construct was renamed`,
          fix: `keep the construct id, or add a moved block: stack.addOverride("moved", [{ from: "${withoutKey(it.address)}", to: "${withoutKey(twin.address)}" }])`,
        };
      }
    },
  }),
  rule({
    id: "volume-lost",
    severity: "warning",
    fix: "check that all its data can be recreated, and plan for a longer start",
    find: each(
      removed(/^(docker_volume|kubernetes_persistent_volume_claim(_v1)?)$/),
      ({ name: id, before, action }) => {
        const name = text(before?.name) ?? text(at(before?.metadata, "name"));
        const engines = /engines/.test(name ?? id)
          ? ": TensorRT must compile its engines again"
          : "";
        return `the volume${name === undefined ? "" : ` ${name}`} is ${removalText(action)}${engines}`;
      },
    ),
  }),
  rule({
    id: "data-lost",
    severity: "error",
    fix: "keep the resource (a moved block if it was renamed, prevent_destroy), or back up its data and add a waiver",
    find: each(
      removed(holdsData, { always: true }),
      ({ type, name, action }) => `the ${type} ${name} is ${removalText(action)}, with its data`,
    ),
  }),
  rule({
    id: "cluster-lost",
    severity: "error",
    fix: "undo the change to the cluster, or destroy the whole environment first and deploy again",
    find: each(removed(/^terraform_data$/), ({ before, action }) =>
      isSet(at(before?.input, "portMappings"))
        ? `the kind cluster is ${removalText(action)}, with everything in it`
        : undefined,
    ),
  }),
  rule({
    id: "namespace-lost",
    severity: "error",
    fix: "undo the change, or destroy the whole environment first and deploy again",
    find: each(removed(/^kubernetes_namespace(_v1)?$/), ({ name, before, action }) => {
      const namespace = text(at(before?.metadata, "name")) ?? name;
      return `the namespace ${namespace} is ${removalText(action)}, with everything in it`;
    }),
  }),
  rule({
    id: "environment-lost",
    severity: "warning",
    fix: "make sure that its endpoints are no longer used",
    *find(change) {
      if (!isDestroyed(change)) return;
      const urls = environmentBefore(change)?.services.flatMap(({ endpoints }) =>
        endpoints.filter(({ name }) => name !== undefined).map(({ url }) => url),
      );
      yield {
        message: `everything is destroyed${urls === undefined ? "" : `, including the endpoints ${urls.join(", ")}`}`,
      };
    },
  }),
  rule({
    id: "environment-described",
    severity: "warning",
    fix: "keep the output environment, and review with the clipstack version that synthesized it",
    *find(change) {
      if (isDestroyed(change) || environmentOf(change) !== undefined) return;
      const { environmentAfter: output } = change;
      const isRead = environmentBefore(change) !== undefined;
      // another project may have an output of this name
      if (!isRead && !(isObject(output) && Array.isArray(output.services))) return;
      const problem = isSet(output) ? "cannot be read" : "is missing";
      yield {
        message: `the output environment ${problem}: rules about services and GPUs (endpoint-changed, cost-rise, model-fits-gpu and more) have no data`,
      };
    },
  }),
  rule({
    id: "endpoint-changed",
    severity: "warning",
    fix: "inform the clients, or keep the old endpoint until they have migrated",
    *find(change) {
      const [before, after] = [environmentBefore(change), environmentOf(change)];
      if (before === undefined || after === undefined) return;
      for (const old of before.services) {
        const current = after.services.find(({ name }) => name === old.name);
        if (current === undefined) {
          yield { message: `the service ${old.name} is removed` };
          continue;
        }
        for (const { name, url } of old.endpoints) {
          const isKept = current.endpoints.some((it) => it.url === url && it.name === name);
          if (name === undefined || isKept) continue;
          const moved = current.endpoints.find((it) => it.name === name);
          yield {
            message: `${old.name}: ${name} ${moved === undefined ? `at ${url} is removed` : `moves from ${url} to ${moved.url}`}`,
          };
        }
        if (old.authorization === undefined && current.authorization !== undefined) {
          yield { message: `${old.name} newly requires an API key (${current.authorization})` };
        }
      }
    },
  }),
  rule({
    id: "cost-rise",
    severity: "warning",
    fix: "check the GPUs in the settings (host.gpu, host.count, nodePool)",
    *find(change) {
      const [before, after] = [environmentBefore(change)?.gpu, environmentOf(change)?.gpu];
      if (before === undefined || after === undefined) return;
      if (after.usdPerHour < before.usdPerHour * 1.5 || before.usdPerHour === 0) return;
      yield {
        message: `costs ${dollars(after.usdPerHour)} per hour instead of ${dollars(before.usdPerHour)} (${after.count} ${after.name} instead of ${before.count} ${before.name})`,
      };
    },
  }),
  rule({
    id: "changed-outside",
    severity: "warning",
    fix: "find out who changed it and why; then add the change to the settings or let the apply revert it",
    find: each(
      ({ drift }) => drift,
      ({ action }) =>
        action === "delete"
          ? "was destroyed outside of Terraform"
          : "was changed outside of Terraform",
    ),
  }),
];

/** Identity of an object at its provider, or its values if it has no name. Two addresses of one object have the same identity. */
function identityOf({ type }: ResourceChange, values: ResourceChange["after"]): string | undefined {
  if (values === undefined || isDeploymentStep(type, values)) return undefined;
  const metadata = at(values, "metadata", "name");
  const namespace = at(values, "metadata", "namespace") ?? at(values, "namespace");
  const name = values.name ?? metadata;
  if (isSet(name)) return `${type} ${String(name)} ${String(namespace ?? "")}`;
  const { id: _id, output: _output, "//": _metadata, ...own } = values;
  return Object.values(own).some(isSet) ? `${type} ${canonical(own)}` : undefined;
}

/** Returns whether a resource is a deployment step, which can be recreated without impact. */
function isDeploymentStep(type: string, values: NonNullable<ResourceChange["after"]>): boolean {
  if (type === "terraform_data") return !isSet(at(values.input, "portMappings"));
  return type === "null_resource" || (type === "docker_container" && isOneShot(values));
}

function dollars(usdPerHour: number): string {
  return `$${Number(usdPerHour.toFixed(2))}`;
}
