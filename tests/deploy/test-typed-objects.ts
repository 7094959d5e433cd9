import { createHash } from "node:crypto";

/**
 * Rewrites a synthesized stack so that `kubectl` applies its typed objects, for machines without the Kubernetes provider. Everything
 * else, including the cluster, its images and the rollout gates, is unchanged.
 */

/** A resource of a `cdk.tf.json`. */
type Resource = Readonly<Record<string, unknown>>;

export interface SynthesizedStack {
  readonly provider: Readonly<Record<string, unknown>>;
  readonly resource: Readonly<Record<string, Readonly<Record<string, Resource>>>>;
  readonly terraform: Readonly<Record<string, unknown>> & {
    readonly required_providers: Readonly<Record<string, unknown>>;
  };
  readonly [key: string]: unknown;
}

/** Resource that replaces all typed objects. */
export const objectsAddress = "terraform_data.typed_objects";

/**
 * @param command - applies the objects, with `IMAGE` (image of the Deployment `workload`) and `KUBECONFIG` set
 */
export function applyWithKubectl(
  stack: SynthesizedStack,
  { command, workload }: { readonly command: string; readonly workload: string },
): SynthesizedStack {
  const typed = Object.entries(stack.resource).filter(([type]) => type.startsWith("kubernetes_"));
  const addresses = typed.flatMap(([type, all]) => Object.keys(all).map((id) => `${type}.${id}`));
  const objects = typed.flatMap(([, all]) => Object.values(all));
  const others = Object.fromEntries(
    Object.entries(stack.resource)
      .filter(([type]) => !type.startsWith("kubernetes_"))
      .map(([type, all]) => [
        type,
        Object.fromEntries(
          Object.entries(all).map(([id, resource]) => [
            id,
            withObjectsAddress(resource, addresses),
          ]),
        ),
      ]),
  );
  const kubernetes = (stack.provider.kubernetes as readonly Resource[])[0];
  const image = imageOf(objects, workload);
  const text = JSON.stringify(objects);
  // the Helm provider is declared even without a release
  const unused = ["kubernetes", ...("helm_release" in others ? [] : ["helm"])];
  const without = (all: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(Object.entries(all).filter(([name]) => !unused.includes(name)));
  return {
    ...stack,
    provider: without(stack.provider),
    terraform: {
      ...stack.terraform,
      required_providers: without(stack.terraform.required_providers),
    },
    resource: {
      ...others,
      terraform_data: {
        ...others.terraform_data,
        [objectsAddress.split(".")[1]!]: {
          depends_on: Object.entries(others)
            .flatMap(([type, all]) => Object.keys(all).map((id) => `${type}.${id}`))
            .filter((address) => new RegExp(`\\b${inPattern(address)}\\b`).test(text)),
          // only Terraform knows the image
          triggers_replace: { image, objects: createHash("sha256").update(text).digest("hex") },
          provisioner: [
            {
              "local-exec": {
                command,
                environment: {
                  IMAGE: image,
                  KUBECONFIG: kubernetes?.config_path,
                  CONTEXT: kubernetes?.config_context,
                },
              },
            },
          ],
        },
      },
    },
  };
}

/** Replaces references to typed objects with the resource that applies them. */
function withObjectsAddress(resource: Resource, addresses: readonly string[]): Resource {
  const any = `(?:${addresses.map(inPattern).join("|")})(?![\\w-])`;
  const alone = new RegExp(`^(?:\\$\\{)?${any}\\}?$`);
  // reference inside an expression, with its attribute
  const inExpression = new RegExp(`${any}(?:\\.\\w+|\\[\\w+\\])*`, "g");
  const of = (value: unknown): unknown => {
    if (typeof value === "string") {
      if (alone.test(value)) return objectsAddress;
      return value.includes("${") ? value.replace(inExpression, `${objectsAddress}.id`) : value;
    }
    if (Array.isArray(value)) {
      const all = value.map(of);
      return all.filter((it, index) => it !== objectsAddress || all.indexOf(it) === index);
    }
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, it]) => [key, of(it)]));
  };
  return of(resource) as Resource;
}

function imageOf(objects: readonly Resource[], workload: string): string {
  interface Deployment {
    readonly metadata?: { readonly name?: string };
    readonly spec?: {
      readonly template?: {
        readonly spec?: { readonly container?: readonly { readonly image: string }[] };
      };
    };
  }
  const deployment = (objects as readonly Deployment[]).find(
    ({ metadata, spec }) => metadata?.name === workload && spec?.template !== undefined,
  );
  const image = deployment?.spec?.template?.spec?.container?.[0]?.image;
  if (image === undefined) throw new Error(`the stack has no Deployment ${workload}`);
  return image;
}

function inPattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
