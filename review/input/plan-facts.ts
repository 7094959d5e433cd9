import type { Path, PlanFacts, PlanPart, Values } from "./change.ts";
import { changesOf, unique } from "./plan-resources.ts";
import type { ActionInvocation, Plan } from "./plan-schema.ts";
import { isSecretName, secretPaths } from "./secrets.ts";
import { isObject, markedPaths } from "./value-paths.ts";

/** Variables that are sensitive or ephemeral or have the name of a secret; a plan contains their values in plain text. */
export function sensitiveVariables(
  plan: Plan,
): readonly (readonly [name: string, value: unknown])[] {
  const declared = plan.configuration?.root_module?.variables ?? {};
  return Object.entries(plan.variables ?? {})
    .filter(([name]) => {
      const { sensitive, ephemeral } = Object.hasOwn(declared, name) ? (declared[name] ?? {}) : {};
      return sensitive === true || ephemeral === true || isSecretName(name);
    })
    .map(([name, { value }]) => [name, value]);
}

export function factsOfPlan(plan: Plan, fileName: string): PlanFacts {
  const outputs = Object.entries(plan.output_changes ?? {}).filter(
    ([, { actions }]) => actions.join() !== "no-op",
  );
  return {
    errored: plan.errored === true,
    complete: plan.complete !== false,
    failedChecks: (plan.checks ?? [])
      .filter(({ status }) => status === "fail" || status === "error")
      .map(({ address }) => address?.to_display ?? "(unnamed)"),
    deferred: changesOf(
      (plan.deferred_changes ?? []).map((it) => it.resource_change),
      fileName,
    ),
    outputs: partOf(
      Object.fromEntries(
        outputs.map(([name, { actions, before, after, after_unknown: unknown }]) => [
          name,
          { actions, before, after, unknown },
        ]),
      ),
      outputs.flatMap(([name, { before_sensitive, after_sensitive }]) => [
        ...markedPaths(before_sensitive).map((path) => [name, "before", ...path]),
        ...markedPaths(after_sensitive).map((path) => [name, "after", ...path]),
      ]),
    ),
    variables: partOf(
      Object.fromEntries(
        Object.entries(plan.variables ?? {}).map(([name, { value }]) => [name, value]),
      ),
      sensitiveVariables(plan).map(([name]) => [name]),
    ),
    providers: partOf(plainValues(plan.configuration?.provider_config ?? {})),
    provisioners: partOf(plainValues(provisionersIn(plan.configuration?.root_module))),
    actions: actionsPart(plan.action_invocations ?? []),
    deferredActions: (plan.deferred_action_invocations ?? [])
      .map((it) => it.action_invocation.address)
      .sort(),
  };
}

function actionsPart(invocations: readonly ActionInvocation[]): PlanPart {
  const byAddress = new Map<string, Values[]>();
  const sensitive: Path[] = [];
  for (const it of invocations) {
    const list = byAddress.get(it.address) ?? [];
    byAddress.set(it.address, list);
    const config = [it.address, list.length, "config"];
    sensitive.push(...markedPaths(it.config_sensitive).map((path) => [...config, ...path]));
    list.push({
      config: it.config_values,
      unknown: it.config_unknown,
      trigger: it.lifecycle_action_trigger ?? it.invoke_action_trigger,
    });
  }
  return partOf(Object.fromEntries(byAddress), sensitive);
}

function partOf(values: Values, sensitive: readonly Path[] = []): PlanPart {
  return { values, sensitive: unique([...sensitive, ...secretPaths("", values)]) };
}

/** Unwraps `constant_value`, so that the name of a secret is the direct key of its value. */
export function plainValues(values: Values): Values {
  const walk = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(walk);
    if (!isObject(value)) return value;
    if ("constant_value" in value) return value.constant_value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, walk(item)]));
  };
  return walk(values) as Values;
}

/** Resources in a module of the configuration and the modules that it calls, by address. */
function declaredIn(module: unknown, prefix = ""): readonly (readonly [string, Values])[] {
  if (!isObject(module)) return [];
  const resources = Array.isArray(module.resources) ? module.resources.filter(isObject) : [];
  const calls = Object.entries(isObject(module.module_calls) ? module.module_calls : {});
  return [
    ...resources.map((it) => [`${prefix}${String(it.address)}`, it] as const),
    ...calls.flatMap(([name, call]) =>
      declaredIn(isObject(call) ? call.module : undefined, `${prefix}module.${name}.`),
    ),
  ];
}

/** Provisioners of all resources, by address, including modules. */
export function provisionersIn(module: unknown): Values {
  return Object.fromEntries(
    declaredIn(module)
      .filter(([, { provisioners: all }]) => Array.isArray(all) && all.length > 0)
      .map(([address, { provisioners }]) => [address, provisioners]),
  );
}

/** Arguments of all module calls, constants as values, by address. */
export function argumentsIn(module: unknown, prefix = ""): Values {
  const calls = isObject(module) && isObject(module.module_calls) ? module.module_calls : {};
  const all = Object.entries(calls).flatMap(([name, call]) => {
    const { expressions, module: inner } = isObject(call) ? call : {};
    const own = plainValues(isObject(expressions) ? expressions : {});
    return [[`${prefix}${name}`, own], ...Object.entries(argumentsIn(inner, `${prefix}${name}.`))];
  });
  return Object.fromEntries(all);
}

/** Expressions of all resources, constants as values, by address. */
export function literalsIn(module: unknown): ReadonlyMap<string, Values> {
  return new Map(
    declaredIn(module).map(([address, { expressions }]) => [
      address,
      plainValues(isObject(expressions) ? expressions : {}),
    ]),
  );
}

/** Write-only attributes that are set, by address of the resource; by convention, their names end in `_wo`. */
export function writeOnlyAttributes(module: unknown): ReadonlyMap<string, readonly string[]> {
  const namesIn = (value: unknown): readonly string[] =>
    Array.isArray(value)
      ? value.flatMap(namesIn)
      : Object.entries(isObject(value) ? value : {}).flatMap(([name, inner]) =>
          name.endsWith("_wo") ? [name] : namesIn(inner),
        );
  return new Map(
    declaredIn(module).flatMap(([address, { expressions }]) => {
      const names = [...new Set(namesIn(expressions))];
      return names.length === 0 ? [] : [[address, names] as const];
    }),
  );
}
