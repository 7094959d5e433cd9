import { basename } from "node:path";
import { z } from "zod";
import { environmentOutput } from "../../contract/environment.ts";
import type {
  Action,
  Path,
  PlanFacts,
  PlanPart,
  ResourceChange,
  StackChange,
  Values,
} from "./change.ts";
import { parseJson, readAs } from "./json-file.ts";
import { ReviewError } from "./review-error.ts";
import { isSecretName, secretPaths } from "./secrets.ts";
import { withoutKey } from "./stack-facts.ts";
import {
  blocksOf,
  changedPaths,
  isObject,
  markedPaths,
  ofServer,
  stepInto,
  textsIn,
  valueAt,
} from "./value-paths.ts";

/** `terraform show -json PLAN`: https://developer.hashicorp.com/terraform/internals/json-format, version 1.x. */

const change = z.object({
  actions: z.array(z.string()),
  before: z.unknown().optional(),
  after: z.unknown().optional(),
  after_unknown: z.unknown().optional(),
  before_sensitive: z.unknown().optional(),
  after_sensitive: z.unknown().optional(),
  replace_paths: z.array(z.array(z.union([z.string(), z.number()]))).nullish(),
  importing: z.unknown().optional(),
});

const resource = z.object({
  address: z.string(),
  previous_address: z.string().nullish(),
  mode: z.enum(["managed", "data"]).default("managed"),
  type: z.string(),
  name: z.string(),
  provider_name: z.string().nullish(),
  action_reason: z.string().nullish(),
  deposed: z.string().nullish(),
  change,
});

const actionInvocation = z.object({
  address: z.string(),
  config_values: z.unknown().optional(),
  config_sensitive: z.unknown().optional(),
  config_unknown: z.unknown().optional(),
  lifecycle_action_trigger: z
    .object({
      triggering_resource_address: z.string().nullish(),
      action_trigger_event: z.string().nullish(),
    })
    .loose()
    .nullish(),
  invoke_action_trigger: z.unknown().optional(),
});
type ActionInvocation = z.infer<typeof actionInvocation>;

const plan = z.object({
  terraform_version: z.string().nullish(),
  errored: z.boolean().nullish(),
  complete: z.boolean().nullish(),
  resource_changes: z.array(resource).nullish(),
  resource_drift: z.array(resource).nullish(),
  deferred_changes: z.array(z.object({ resource_change: resource }).loose()).nullish(),
  action_invocations: z.array(actionInvocation).nullish(),
  deferred_action_invocations: z
    .array(z.object({ action_invocation: actionInvocation }).loose())
    .nullish(),
  checks: z
    .array(
      z.object({
        status: z.string().nullish(),
        address: z.object({ to_display: z.string().nullish() }).loose().nullish(),
      }),
    )
    .nullish(),
  output_changes: z.record(z.string(), change).nullish(),
  variables: z.record(z.string(), z.object({ value: z.unknown().optional() })).nullish(),
  configuration: z
    .object({
      provider_config: z
        .record(
          z.string(),
          z
            .object({
              name: z.string().nullish(),
              full_name: z.string().nullish(),
              alias: z.string().nullish(),
              version_constraint: z.string().nullish(),
              expressions: z.unknown().optional(),
            })
            .loose(),
        )
        .nullish(),
      root_module: z
        .object({
          variables: z.record(z.string(), z.object({}).loose()).nullish(),
          resources: z
            .array(z.object({ address: z.string(), expressions: z.unknown().optional() }).loose())
            .nullish(),
        })
        .loose()
        .nullish(),
    })
    .loose()
    .nullish(),
});
type Plan = z.infer<typeof plan>;

export interface PlanFile {
  /** How messages name it. */
  readonly shown: string;
  readonly text: string;
  /**
   * Name of the stack.
   *
   * @default - that of the output `environment`, or `shown`
   */
  readonly stack?: string;
}

/**
 * Read a plan.
 *
 * @throws {ReviewError} one line, without anything of the content.
 */
export function changeOfPlan({ shown, text, stack }: PlanFile): StackChange {
  const raw = parseJson(text, shown);
  checkVersion(raw, shown);
  const read = readAs(plan, raw, shown);
  const imageOf = imagesOfContainers(read);
  const provisioners = plainValues(provisionersIn(read.configuration?.root_module, ""));
  const output = read.output_changes?.[environmentOutput];
  const environmentAfter = output?.after ?? undefined;
  const environmentBefore = output?.before ?? undefined;
  return {
    stack:
      stack ?? nameOf(environmentAfter) ?? nameOf(environmentBefore) ?? basename(shown, ".json"),
    source: "plan",
    resources: changesOf(read.resource_changes ?? [], shown).map((it) => {
      const imageResource = imageOf.get(withoutKey(it.address));
      const own = stepInto(provisioners, it.address.replaceAll(/\[(\d+|"([^"\\]|\\.)*")\]/g, ""));
      return {
        ...it,
        ...(imageResource === undefined ? {} : { imageResource }),
        ...(own === undefined ? {} : { programs: commandsOf(own) }),
      };
    }),
    drift: driftOf(read, shown),
    environmentBefore,
    environmentAfter,
    secrets: sensitiveVariables(read).flatMap(([, value]) =>
      [...textsIn(value)].map(([, text]) => text),
    ),
    configuration: configurationOf(read),
    terraformVersion: read.terraform_version ?? undefined,
    plan: factsOfPlan(read, shown),
    notKnown: [
      ...(read.errored ? ["The plan ended with an error: it is not complete."] : []),
      ...(read.complete === false && !read.errored
        ? ["The plan is not complete: another one is needed after it is applied."]
        : []),
    ],
  };
}

function checkVersion(raw: unknown, shown: string): void {
  if (!isObject(raw)) throw new ReviewError(`${shown}: must be an object, as a plan is`);
  const { format_version: version } = raw;
  if (typeof version !== "string" || !/^\d{1,4}\.\d{1,4}$/.test(version)) {
    throw new ReviewError(
      `${shown}: format_version must be 1.x, as 'terraform show -json PLAN' writes it, got ${typeof version === "string" ? "another text" : "none"}`,
    );
  }
  if (!version.startsWith("1.")) {
    throw new ReviewError(`${shown}: format_version must be 1.x, got ${version}`);
  }
  if (raw.resource_changes === undefined && isObject(raw.values)) {
    throw new ReviewError(`${shown}: must be a plan, got a state: terraform show -json PLAN`);
  }
}

/** What somebody else changed: not what Kubernetes counts itself, nor the replicas of what an autoscaler scales. */
function driftOf(read: Plan, shown: string): readonly ResourceChange[] {
  const isScaled = (read.resource_changes ?? []).some(({ type }) =>
    /^kubernetes_horizontal_pod_autoscaler/.test(type),
  );
  return changesOf(read.resource_drift ?? [], shown).filter((it) =>
    isRealDrift(it, (path) => {
      if (!it.type.startsWith("kubernetes_")) return false;
      const last = String(path.at(-1));
      return path[0] === "metadata" ? ofServer.has(last) : isScaled && last === "replicas";
    }),
  );
}

/** Providers write what nobody set as `null` when they make a thing, and as `0` or `[]` when they look at it. */
function isRealDrift(
  { action, before, after }: ResourceChange,
  isOthers: (path: Path) => boolean,
): boolean {
  if (action === "no-op") return false;
  if (action !== "update") return true;
  return changedPaths(before, after).some(
    (path) =>
      !isOthers(path) &&
      [valueAt(before, path), valueAt(after, path)].some((value) => value && value !== true),
  );
}

type PlannedResource = z.infer<typeof resource>;

function changesOf(list: readonly PlannedResource[], shown: string): readonly ResourceChange[] {
  return list
    .map((it) => resourceChange(it, shown))
    .sort((a, b) => {
      if (a.address !== b.address) return a.address < b.address ? -1 : 1;
      return (a.deposed ?? "") < (b.deposed ?? "") ? -1 : 1;
    });
}

function resourceChange(it: PlannedResource, shown: string): ResourceChange {
  const { actions, after_unknown, before_sensitive, after_sensitive } = it.change;
  const before = isObject(it.change.before) ? it.change.before : undefined;
  const after = isObject(it.change.after) ? it.change.after : undefined;
  return {
    address: it.address,
    type: it.type,
    name: it.name,
    mode: it.mode,
    action: actionOf(actions, `${shown}: ${it.address}`),
    ...(actions.join() === "create,delete" ? { createBeforeDestroy: true } : {}),
    before,
    after,
    unknown: markedPaths(after_unknown),
    sensitive: unique([
      ...markedPaths(before_sensitive),
      ...markedPaths(after_sensitive),
      ...secretPaths(it.type, before),
      // what does not change has them in the same places
      ...(it.change.actions.join() === "no-op" && before !== undefined
        ? []
        : secretPaths(it.type, after)),
    ]),
    replacePaths: it.change.replace_paths ?? [],
    actions,
    ...(it.provider_name ? { provider: it.provider_name.split("/").slice(-2).join("/") } : {}),
    ...(it.deposed ? { deposed: it.deposed } : {}),
    ...(it.action_reason ? { reason: it.action_reason } : {}),
    ...(it.previous_address ? { movedFrom: it.previous_address } : {}),
    ...(isObject(it.change.importing) ? { imported: true } : {}),
  };
}

const singleActions = ["no-op", "create", "read", "update", "delete", "forget"] as const;
const replaceActions = ["delete,create", "create,delete", "create,forget"];

function actionOf(actions: readonly string[], place: string): Action {
  const words = actions.join();
  const action = replaceActions.includes(words)
    ? "replace"
    : singleActions.find((single) => single === words);
  if (action !== undefined) return action;
  throw new ReviewError(`${place}: change.actions must be an action that Terraform 1 has`);
}

export function unique(paths: readonly Path[]): readonly Path[] {
  const seen = new Map(paths.map((path) => [JSON.stringify(path), path]));
  return [...seen.values()];
}

function nameOf(environment: unknown): string | undefined {
  const name = isObject(environment) ? environment.name : undefined;
  return typeof name === "string" && name !== "" ? name : undefined;
}

/** Which `docker_image` each container of the configuration names. */
function imagesOfContainers({ configuration }: Plan): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { address, expressions } of configuration?.root_module?.resources ?? []) {
    const image = isObject(expressions) ? expressions.image : undefined;
    const references = isObject(image) && Array.isArray(image.references) ? image.references : [];
    const name = references.find((it) => /^docker_image\.[\w-]+$/.test(String(it)));
    if (name !== undefined) found.set(address, String(name));
  }
  return found;
}

/** Values of variables that are declared as sensitive, or have the name of a secret: a plan has them in plain text. */
function sensitiveVariables(read: Plan): readonly (readonly [name: string, value: unknown])[] {
  const declared = read.configuration?.root_module?.variables ?? {};
  return Object.entries(read.variables ?? {})
    .filter(
      ([name]) =>
        (Object.hasOwn(declared, name) && declared[name]?.sensitive === true) || isSecretName(name),
    )
    .map(([name, { value }]) => [name, value]);
}

/** What a plan says of the configuration, in the words of the synthesized file. The backend is not in it. */
function configurationOf({ configuration }: Plan): StackChange["configuration"] {
  if (!configuration) return undefined;
  const providers = Object.entries(configuration.provider_config ?? {});
  const required = providers
    .filter(([, { alias, full_name }]) => !alias && full_name)
    .map(([key, { name, full_name, version_constraint }]) => {
      const source = (full_name ?? "").replace(/^registry\.[^/]+\//, "");
      return [
        name ?? key,
        { source, ...(version_constraint ? { version: version_constraint } : {}) },
      ] as const;
    });
  // a provider may have any name, `constructor` as well
  const provider = new Map<string, unknown[]>();
  for (const [key, { name, alias, expressions }] of providers) {
    const list = provider.get(name ?? key) ?? [];
    provider.set(name ?? key, list);
    list.push({
      ...(alias ? { alias } : {}),
      ...Object.fromEntries(
        Object.entries(isObject(expressions) ? expressions : {}).map(([argument, value]) => [
          argument,
          isObject(value) && "constant_value" in value ? value.constant_value : value,
        ]),
      ),
    });
  }
  return {
    terraform: { required_providers: Object.fromEntries(required) },
    provider: Object.fromEntries(provider),
    variable: configuration.root_module?.variables ?? {},
  };
}

function factsOfPlan(read: Plan, shown: string): PlanFacts {
  const outputs = Object.entries(read.output_changes ?? {}).filter(
    ([, { actions }]) => actions.join() !== "no-op",
  );
  return {
    errored: read.errored === true,
    complete: read.complete !== false,
    failedChecks: (read.checks ?? [])
      .filter(({ status }) => status === "fail" || status === "error")
      .map(({ address }) => address?.to_display ?? "without a name"),
    deferred: changesOf(
      (read.deferred_changes ?? []).map((it) => it.resource_change),
      shown,
    ),
    outputs: partOf(
      Object.fromEntries(
        outputs.map(([name, { actions, before, after, after_unknown: unknown }]) => [
          name,
          { actions, before, after, unknown },
        ]),
      ),
      outputs.flatMap(([name, { before_sensitive: was, after_sensitive: is }]) => [
        ...markedPaths(was).map((path) => [name, "before", ...path]),
        ...markedPaths(is).map((path) => [name, "after", ...path]),
      ]),
    ),
    variables: partOf(
      Object.fromEntries(
        Object.entries(read.variables ?? {}).map(([name, { value }]) => [name, value]),
      ),
      sensitiveVariables(read).map(([name]) => [name]),
    ),
    providers: partOf(plainValues(read.configuration?.provider_config ?? {})),
    provisioners: partOf(plainValues(provisionersIn(read.configuration?.root_module, ""))),
    actions: actionsPart(read.action_invocations ?? []),
    deferredActions: (read.deferred_action_invocations ?? [])
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
    const place = [it.address, list.length, "config"];
    sensitive.push(...markedPaths(it.config_sensitive).map((path) => [...place, ...path]));
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

/** Expressions of a configuration with constants as they are: the name of what is secret stands above its value then. */
function plainValues(values: Values): Values {
  const walk = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(walk);
    if (!isObject(value)) return value;
    if ("constant_value" in value) return value.constant_value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, walk(item)]));
  };
  return walk(values) as Values;
}

/** Commands of the provisioners of one resource, as a plan has them. */
function commandsOf(provisioners: unknown): readonly string[] {
  return blocksOf(provisioners).map(({ type, expressions }) => {
    const command = isObject(expressions) ? expressions.command : undefined;
    return type === "local-exec" && typeof command === "string" ? command : "";
  });
}

/** Programs that Terraform runs when it makes or destroys a resource, in all modules. */
function provisionersIn(module: unknown, prefix: string): Values {
  if (!isObject(module)) return {};
  const resources = Array.isArray(module.resources) ? module.resources : [];
  const own = resources.flatMap((it): [string, unknown][] =>
    isObject(it) && Array.isArray(it.provisioners) && it.provisioners.length > 0
      ? [[`${prefix}${String(it.address)}`, it.provisioners]]
      : [],
  );
  const below = Object.entries(isObject(module.module_calls) ? module.module_calls : {}).flatMap(
    ([name, call]) =>
      Object.entries(
        provisionersIn(isObject(call) ? call.module : undefined, `${prefix}module.${name}.`),
      ),
  );
  return Object.fromEntries([...own, ...below]);
}
