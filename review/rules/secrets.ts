import { valueAt } from "../../contract/issue-lines.ts";
import { cached } from "../facts/cached.ts";
import { blocks, isExpression, isSet } from "../facts/values.ts";
import { managedResources, ofType, releasesOf, resourcesOf } from "../facts/workloads.ts";
import type { Path, ResourceChange, StackChange } from "../input/change.ts";
import { PathSet } from "../input/path-set.ts";
import { canBeSecret, hasSecretPattern, isSecretName, namedSecrets } from "../input/secrets.ts";
import { isObject, isUnset, sameValue, textsIn } from "../input/value-paths.ts";
import { each, type ReviewRule, type RuleMatch, rule } from "./rule.ts";

const sensitivePaths = cached(({ sensitive }: ResourceChange) => new PathSet(sensitive));

const markedPaths = cached(({ marked = [] }: ResourceChange) => new PathSet(marked));

/** Returns whether a value comes from elsewhere: Terraform marks it, or it is in a Secret, and the configuration does not have it literally. */
function isFromSensitiveVariable(resource: ResourceChange, path: Path, text: string): boolean {
  return (
    (markedPaths(resource).covers(path) || sensitivePaths(resource).covers(path.slice(0, -1))) &&
    valueAt(resource.literals, path) !== text
  );
}

/** Literal values of Secrets that a synthesized stack declares. */
function* literalSecretData(change: StackChange): Generator<RuleMatch> {
  // in a plan, the provider marks all data of Secrets as sensitive, whatever its source
  if (change.source === "plan") return;
  for (const resource of resourcesOf(change, "kubernetes_secret")) {
    for (const field of ["data", "string_data"] as const) {
      const data = resource.after?.[field];
      if (!isObject(data)) continue;
      for (const [name, value] of Object.entries(data)) {
        if (typeof value !== "string" || value === "" || isExpression(value)) continue;
        yield {
          address: resource.address,
          message: `${field}.${name} must come from a sensitive variable, got a literal value`,
        };
      }
    }
  }
}

/** Parts of a stack besides resources and variables that Terraform prints or the repository contains. */
function otherParts({ configuration }: StackChange) {
  const { provider, outputs: output, calls: module } = configuration ?? {};
  return { provider, output, module };
}

/** Variables for the key of an object in a bucket. */
const objectKeys = /(^|_)(s3|object|state)_key$/i;

/** Readable secrets. Findings never contain values. */
export const secretRules: readonly ReviewRule[] = [
  rule({
    id: "secret-plain-text",
    severity: "error",
    fix: "declare a sensitive variable, which Terraform reads from TF_VAR_…; in a cluster, reference a Secret (keySecret)",
    *find(change) {
      for (const resource of managedResources(change)) {
        const isPod = /^kubernetes_(?!secret)/.test(resource.type);
        const origin = isPod ? "a Secret" : "a sensitive variable";
        for (const { path, name, text } of namedSecrets(resource.after)) {
          if (path[0] === "//" || isFromSensitiveVariable(resource, path, text)) continue;
          const field = isPod && path.at(-1) === "value" ? " (value_from)" : "";
          yield {
            address: resource.address,
            message: `${name} must come from ${origin}${field}, got a literal value`,
          };
        }
      }
      for (const { path, name } of namedSecrets(otherParts(change))) {
        const rule = path[0] === "output" ? "be sensitive" : "come from a sensitive variable";
        yield { message: `${name} must ${rule}, got a literal value` };
      }
      for (const { resource, values } of releasesOf(change)) {
        for (const name of secretVariables(values)) {
          yield {
            address: resource.address,
            message: `${name} must come from a Secret (valueFrom), got a literal value`,
          };
        }
      }
      yield* literalSecretData(change);
    },
  }),
  rule({
    id: "secret-form",
    severity: "error",
    fix: "remove the secret and rotate it: everyone with access to the repository has the old value",
    *find(change) {
      for (const resource of managedResources(change)) {
        for (const [path, value] of textsIn(resource.after)) {
          if (path[0] === "//" || isFromSensitiveVariable(resource, path, value)) continue;
          if (!hasSecretPattern(withoutExpressions(value))) continue;
          yield {
            address: resource.address,
            message: `${pathName(path)} must not contain what looks like a secret (value hidden)`,
          };
        }
      }
      for (const [path, value] of textsIn(otherParts(change))) {
        if (!hasSecretPattern(withoutExpressions(value))) continue;
        yield {
          message: `${pathName(path)} must not contain what looks like a secret (value hidden)`,
        };
      }
    },
  }),
  rule({
    id: "secret-variable",
    severity: "error",
    fix: "set sensitive to true, and remove the default",
    *find(change) {
      const variables = change.configuration?.variable;
      if (!isObject(variables)) return;
      for (const [name, body] of Object.entries(variables)) {
        const [variable] = blocks(body);
        if (variable === undefined || objectKeys.test(name)) continue;
        const value = change.plan?.variables.values[name] ?? variable.default;
        const given = textsIn(value).filter(([, text]) => text !== "");
        // `ssh_key` with a public key, `enable_auth` with a boolean
        const isOther = (isSet(value) && typeof value !== "string") || given.length > 0;
        const isSecret =
          isSecretName(name) && (!isOther || given.some(([, text]) => canBeSecret(name, text)));
        // `database` with `{ password: … }`
        const hasSecret =
          namedSecrets({ [name]: value }).length > 0 ||
          given.some(([, text]) => hasSecretPattern(withoutExpressions(text)));
        if (!isSecret && !hasSecret) continue;
        const isHidden = variable.sensitive === true || variable.ephemeral === true;
        if (!isHidden) yield { message: `variable ${name} must be sensitive` };
        if (!isUnset(variable.default) && (isSecret || sameValue(value, variable.default))) {
          yield { message: `variable ${name} must have no default` };
        }
      }
    },
  }),
  rule({
    id: "secret-build-argument",
    severity: "error",
    fix: "use a build secret (build.secrets), or download the files that need it before the build",
    find: each(ofType("docker_image"), ({ after }) =>
      blocks(after?.build)
        .flatMap(({ build_args }) => blocks(build_args).flatMap((it) => Object.keys(it)))
        .filter(isSecretName)
        .map((name) => `build_args must not contain a secret, got ${name}`),
    ),
  }),
];

/** Secret variables with a literal value in the chart's `extraEnv`. */
function secretVariables(values: Readonly<Record<string, unknown>>): readonly string[] {
  return ["embed", "triton"].flatMap((component) =>
    blocks(blocks(values[component])[0]?.extraEnv).flatMap(({ name, value }) =>
      typeof name === "string" &&
      isSecretName(name) &&
      typeof value === "string" &&
      canBeSecret(name, value)
        ? [name]
        : [],
    ),
  );
}

function withoutExpressions(value: string): string {
  return value.replaceAll(/\$\{[^}]*\}/g, "");
}

function pathName(path: Path): string {
  return path.map(String).join(".");
}
