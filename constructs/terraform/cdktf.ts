/**
 * Only module that imports `cdktf`. Migration to its community fork affects this file, `package.json` and the name of the
 * command.
 */
import util from "node:util";
import type { Construct, IConstruct } from "constructs";
import {
  type DataConfig,
  DefaultTokenResolver,
  StringConcat,
  TerraformResource,
  Tokenization,
} from "#cdktf";

export {
  AnnotationMetadataEntryType,
  Annotations,
  App,
  DISABLE_STACK_TRACE_IN_METADATA,
  GcsBackend,
  HttpBackend,
  Lazy,
  LocalBackend,
  S3Backend,
  TerraformLocal,
  type TerraformMetaArguments,
  TerraformOutput,
  TerraformResource,
  TerraformStack,
  TerraformVariable,
  Testing,
  Token,
} from "#cdktf";

// cdktf calls it, newer versions of Node warn about that, and one will lack it
Object.assign(util, { isArray: Array.isArray });

/**
 * `terraform_data`, a resource without a provider. Replaces cdktf's own class, which runs `terraform version` twice for each
 * resource. Terraform checks `required_version` itself (`state.ts`).
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

/** Address of a resource: `docker_volume.x`. For arguments that accept no expression, such as `replace_triggered_by`. */
export function addressOf(resource: TerraformResource): string {
  return `${resource.terraformResourceType}.${resource.friendlyUniqueId}`;
}

/** Resolves tokens as synthesis does: the token of an attribute becomes `${docker_volume.x.name}`. */
export function asWritten(scope: IConstruct, value: unknown): unknown {
  const resolver = new DefaultTokenResolver(new StringConcat());
  return Tokenization.resolve(value, { scope, resolver, preparing: false });
}
