import { basename } from "node:path";
import { environmentOutput } from "../../contract/environment.ts";
import type { StackChange } from "./change.ts";
import { parseJson, validated } from "./json-file.ts";
import {
  argumentsIn,
  factsOfPlan,
  literalsIn,
  plainValues,
  provisionersIn,
  sensitiveVariables,
  writeOnlyAttributes,
} from "./plan-facts.ts";
import { changesOf, driftOf } from "./plan-resources.ts";
import { type Plan, planSchema } from "./plan-schema.ts";
import { ReviewError } from "./review-error.ts";
import { withoutKey } from "./stack-facts.ts";
import { blocksOf, isObject, ownValue, textsIn } from "./value-paths.ts";

export interface PlanFile {
  /** Name in messages. */
  readonly fileName: string;
  readonly text: string;
  /**
   * Name of the stack.
   *
   * @default - name in the output `environment`, or `fileName`
   */
  readonly stack?: string;
}

/**
 * Parses a plan.
 *
 * @throws {ReviewError} with a message that does not quote the content.
 */
export function changeOfPlan({ fileName, text, stack }: PlanFile): StackChange {
  const raw = parseJson(text, fileName);
  checkVersion(raw, fileName);
  const plan = validated(planSchema, raw, fileName);
  const imageOf = imagesOfContainers(plan);
  const root = plan.configuration?.root_module;
  const provisioners = plainValues(provisionersIn(root));
  const writeOnly = writeOnlyAttributes(root);
  const literals = literalsIn(root);
  const output = plan.output_changes?.[environmentOutput];
  const environmentAfter = output?.after ?? undefined;
  const environmentBefore = output?.before ?? undefined;
  return {
    stack:
      stack ?? nameOf(environmentAfter) ?? nameOf(environmentBefore) ?? basename(fileName, ".json"),
    source: "plan",
    resources: changesOf(plan.resource_changes ?? [], fileName).map((it) => {
      const imageResource = imageOf.get(withoutKey(it.address));
      const declared = withoutInstanceKeys(it.address);
      const own = ownValue(provisioners, declared);
      const hiddenNames = writeOnly.get(declared);
      return {
        ...it,
        literals: literals.get(declared),
        ...(imageResource === undefined ? {} : { imageResource }),
        ...(own === undefined ? {} : { programs: commandsOf(own) }),
        ...(hiddenNames === undefined ? {} : { writeOnly: hiddenNames }),
      };
    }),
    drift: driftOf(plan, fileName),
    environmentBefore,
    environmentAfter,
    secrets: sensitiveVariables(plan).flatMap(([, value]) =>
      textsIn(value).map(([, text]) => text),
    ),
    configuration: configurationOf(plan),
    ...(text.includes('"registry.opentofu.org/') ? { engine: "OpenTofu" as const } : {}),
    terraformVersion: plan.terraform_version ?? undefined,
    plan: factsOfPlan(plan, fileName),
    limitations: [
      ...(plan.errored ? ["Planning failed: the plan is incomplete."] : []),
      ...(plan.complete === false && !plan.errored
        ? ["The plan is incomplete: a second plan and apply is required."]
        : []),
    ],
  };
}

/** Address without the instance keys of the resource and its modules. */
function withoutInstanceKeys(address: string): string {
  return address.replaceAll(/\[(\d+|"([^"\\]|\\.)*")\]/g, "");
}

const howToWrite = "'terraform plan -out=PLAN', then 'terraform show -json PLAN > plan.json'";

function checkVersion(raw: unknown, fileName: string): void {
  if (!isObject(raw))
    throw new ReviewError(`${fileName}: must be a plan in JSON, an object: ${howToWrite}`);
  const { format_version: version } = raw;
  if (version === undefined) {
    throw new ReviewError(
      `${fileName}: must be a plan in JSON, with format_version 1.x, got nothing: ${howToWrite}`,
    );
  }
  if (typeof version !== "string" || !/^\d{1,4}\.\d{1,4}$/.test(version)) {
    throw new ReviewError(
      `${fileName}: format_version must be 1.x, as 'terraform show -json PLAN' writes it, got another format`,
    );
  }
  if (!version.startsWith("1.")) {
    throw new ReviewError(
      `${fileName}: format_version must be 1.x, which Terraform 1.1 and newer write, got ${version}`,
    );
  }
  if (raw.resource_changes === undefined && isObject(raw.values)) {
    throw new ReviewError(
      `${fileName}: must be a plan, got a state; run: terraform show -json PLAN`,
    );
  }
}

function nameOf(environment: unknown): string | undefined {
  const name = isObject(environment) ? environment.name : undefined;
  return typeof name === "string" && name !== "" ? name : undefined;
}

/** Address of the `docker_image` of each container in the configuration. */
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

/** Configuration in a plan, in the format of a synthesized file; a plan does not contain the backend. */
function configurationOf({
  configuration,
  output_changes: outputs,
}: Plan): StackChange["configuration"] {
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
  // a Map, because a provider may be named `constructor`
  const provider = new Map<string, unknown[]>();
  for (const [key, { name, alias, expressions }] of providers) {
    const list = provider.get(name ?? key) ?? [];
    provider.set(name ?? key, list);
    list.push({
      ...(alias ? { alias } : {}),
      ...plainValues(isObject(expressions) ? expressions : {}),
    });
  }
  return {
    terraform: { required_providers: Object.fromEntries(required) },
    provider: Object.fromEntries(provider),
    variable: configuration.root_module?.variables ?? {},
    calls: argumentsIn(configuration.root_module),
    outputs: Object.fromEntries(
      Object.entries(outputs ?? {})
        .filter(([, it]) => it.actions.join() !== "no-op" && it.after_sensitive !== true)
        .map(([name, { after }]) => [name, after]),
    ),
  };
}

/** Commands of provisioners in a plan. */
function commandsOf(provisioners: unknown): readonly string[] {
  return blocksOf(provisioners).map(({ type, expressions }) => {
    const command = isObject(expressions) ? expressions.command : undefined;
    return type === "local-exec" && typeof command === "string" ? command : "";
  });
}
