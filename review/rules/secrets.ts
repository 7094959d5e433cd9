import type { Path, ResourceChange } from "../input/change.ts";
import { PathSet } from "../input/path-set.ts";
import { canBeSecret, hasSecretPattern, isSecretName } from "../input/secrets.ts";
import { isObject, textsIn } from "../input/value-paths.ts";
import { cached } from "./cached.ts";
import { containerPath } from "./example-paths.ts";
import { deploymentsOf, ofType, podContainers, podOf, releasesOf, resourcesOf } from "./facts.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { blocks, isExpression, isSet, texts } from "./values.ts";

/** Fake secret of the examples. */
const planted = "planted-0000000000";

const sensitivePaths = cached(({ sensitive }: ResourceChange) => new PathSet(sensitive));

function isFromSensitiveVariable(resource: ResourceChange, path: Path): boolean {
  return sensitivePaths(resource).covers(path.slice(0, -1));
}

/** Readable secrets. Findings never contain values. */
export const secretRules: readonly ReviewRule[] = [
  rule({
    id: "secret-plain-text",
    severity: "error",
    title: "Secrets are not in the stack.",
    rationale:
      "The synthesized file ends up in plans and pipeline logs, and stays there as long as they are kept.",
    inputs:
      "Environment variables of containers and pods with a secret's name, and the data of typed Secrets. Switches and numbers are ignored unless the name is that of a password. Values from sensitive variables or cluster Secrets pass.",
    fix: "declare a sensitive variable, which Terraform reads from TF_VAR_…; in a cluster, reference a Secret (keySecret)",
    example: {
      stack: "single-gpu",
      message: "API_KEY must come from a sensitive variable, got a literal value",
      edits: [
        {
          path: containerPath("embed/container", "env", 0),
          failing: `API_KEY=${planted}`,
          // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of Terraform
          passing: "API_KEY=${var.embed_api_key}",
        },
      ],
    },
    *find(change) {
      for (const resource of resourcesOf(change, "docker_container")) {
        for (const [index, line] of texts(resource.after?.env).entries()) {
          const name = line.slice(0, line.indexOf("="));
          const value = line.slice(name.length + 1);
          if (!isSecretName(name) || !canBeSecret(name, value) || isExpression(value)) continue;
          if (isFromSensitiveVariable(resource, ["env", index])) continue;
          yield {
            address: resource.address,
            message: `${name} must come from a sensitive variable, got a literal value`,
          };
        }
      }
      for (const deployment of deploymentsOf(change)) {
        const variables = podContainers(podOf(deployment).pod).flatMap(({ env }) => blocks(env));
        for (const { name, value } of variables) {
          if (typeof value !== "string" || isExpression(value)) continue;
          if (typeof name !== "string" || !isSecretName(name) || !canBeSecret(name, value))
            continue;
          yield {
            address: deployment.address,
            message: `${name} must come from a Secret (value_from), got a literal value`,
          };
        }
      }
      for (const { resource, values } of releasesOf(change)) {
        for (const name of secretVariables(values)) {
          yield {
            address: resource.address,
            message: `${name} must come from a Secret (valueFrom), got a literal value`,
          };
        }
      }
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
    },
  }),
  rule({
    id: "secret-form",
    severity: "error",
    title: "No value in the stack looks like a secret.",
    rationale:
      "Passwords are pasted into URLs, and cloud or registry keys into commands. Their format makes them easy to find, also for an attacker.",
    inputs:
      "All strings of all resources: URLs with a password, private keys, signed tokens and addresses, webhooks, keys of AWS, Azure, Google, GitHub, GitLab, Slack, Stripe, SendGrid, Vault, Hugging Face, npm, PyPI, Docker and NVIDIA.",
    fix: "remove the secret and rotate it: everyone with access to the repository has the old value",
    example: {
      stack: "single-gpu",
      message: "env.0 must not contain what looks like a secret (value hidden)",
      edits: [
        {
          path: containerPath("embed/container", "env", 0),
          failing: `UPSTREAM=https://reader:${planted}@models.example/`,
          passing: "UPSTREAM=https://models.example/",
        },
      ],
    },
    *find(change) {
      for (const resource of change.resources) {
        if (resource.mode !== "managed") continue;
        for (const [path, value] of textsIn(resource.after)) {
          if (path[0] === "//" || isFromSensitiveVariable(resource, path)) continue;
          if (!hasSecretPattern(withoutExpressions(value))) continue;
          yield {
            address: resource.address,
            message: `${pathName(path)} must not contain what looks like a secret (value hidden)`,
          };
        }
      }
    },
  }),
  rule({
    id: "secret-variable",
    severity: "error",
    title: "A variable for a secret is sensitive and has no default.",
    rationale:
      "Terraform prints non-sensitive variables in plans and logs, and a default value is in the repository.",
    inputs: "`variable` of the synthesized file, by name. Ephemeral variables count as sensitive.",
    fix: "set sensitive to true, and remove the default",
    example: {
      stack: "single-gpu",
      message: "variable embed_api_key must be sensitive",
      settings: "embed: { expose: all-interfaces }",
      edits: [{ path: ["variable", "embed_api_key", "sensitive"], failing: false, passing: true }],
    },
    *find(change) {
      const variables = change.configuration?.variable;
      if (!isObject(variables)) return;
      for (const [name, body] of Object.entries(variables)) {
        const [variable] = blocks(body);
        if (variable === undefined || !isSecretName(name)) continue;
        const isHidden = variable.sensitive === true || variable.ephemeral === true;
        if (!isHidden) yield { message: `variable ${name} must be sensitive` };
        if (isSet(variable.default) && variable.default !== "") {
          yield { message: `variable ${name} must have no default` };
        }
      }
    },
  }),
  rule({
    id: "secret-build-argument",
    severity: "error",
    title: "Build arguments contain no secrets.",
    rationale: "`docker history` shows build arguments to everyone who has the image.",
    inputs: "`build_args` of every `docker_image`, by name.",
    fix: "use a build secret (build.secrets), or download the files that need it before the build",
    example: {
      stack: "kind-local",
      message: "build_args must not contain a secret, got NPM_TOKEN",
      edits: [
        {
          path: ["resource", "docker_image", "image/image/image", "build", "build_args"],
          failing: { NPM_TOKEN: planted },
          passing: {},
        },
      ],
    },
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
