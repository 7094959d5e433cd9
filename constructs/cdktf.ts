/**
 * The only module that imports `cdktf`. A move to its community fork is this file, `package.json` and the name of the
 * command line.
 */
import {
  type DataConfig,
  DefaultTokenResolver,
  StringConcat,
  TerraformResource,
  Tokenization,
} from "cdktf";
import type { Construct, IConstruct } from "constructs";

export {
  App,
  GcsBackend,
  HttpBackend,
  Lazy,
  LocalBackend,
  S3Backend,
  TerraformLocal,
  TerraformOutput,
  TerraformResource,
  TerraformStack,
  TerraformVariable,
  Testing,
} from "cdktf";

/**
 * `terraform_data`, a resource without a provider. cdktf's own class runs `terraform version` for each resource, twice;
 * Terraform checks `required_version` itself (`state.ts`).
 */
export class DataResource extends TerraformResource {
  readonly #attributes: { [name: string]: unknown };

  constructor(scope: Construct, id: string, config: DataConfig) {
    const { input, triggersReplace, ...meta } = config;
    super(scope, id, { ...meta, terraformResourceType: "terraform_data" });
    this.#attributes = { input, triggers_replace: triggersReplace };
  }

  protected override synthesizeAttributes(): { [name: string]: unknown } {
    return this.#attributes;
  }
}

/** Address of a resource, `docker_volume.x`: for places that take no expression, as `replace_triggered_by`. */
export function addressOf(resource: TerraformResource): string {
  return `${resource.terraformResourceType}.${resource.friendlyUniqueId}`;
}

/** `value` as it will be written: a token that stands for an attribute is `${docker_volume.x.name}`. */
export function asWritten(scope: IConstruct, value: unknown): unknown {
  const resolver = new DefaultTokenResolver(new StringConcat());
  return Tokenization.resolve(value, { scope, resolver, preparing: false });
}
