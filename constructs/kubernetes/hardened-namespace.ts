import type { Construct } from "constructs";
import { podSecurity } from "../../contract/pods.ts";
import { type TerraformMetaArguments, TerraformResource } from "../terraform/cdktf.ts";

/**
 * Namespace in which the API server rejects pods that violate the Pod Security Standard. The bindings of versions 2 and 3 of the
 * Kubernetes provider declare its metadata as different types; the provider reads both the same way.
 */
export class HardenedNamespace extends TerraformResource {
  readonly #metadata: { readonly name: string; readonly labels: Record<string, string> };

  constructor(scope: Construct, id: string, name: string, meta: TerraformMetaArguments = {}) {
    super(scope, id, {
      ...meta,
      terraformResourceType: "kubernetes_namespace_v1",
      terraformGeneratorMetadata: { providerName: "kubernetes" },
    });
    this.#metadata = { name, labels: { [podSecurity.label]: podSecurity.level } };
  }

  /** Name as a reference, so that what uses it depends on the namespace. */
  get namespaceName(): string {
    return this.getStringAttribute("metadata[0].name");
  }

  protected override synthesizeAttributes(): { [name: string]: unknown } {
    return { metadata: this.#metadata };
  }
}
