/**
 * The only module that imports `cdktf`. A move to its community fork is this file, `package.json` and the name of the
 * command line.
 */
import { DefaultTokenResolver, StringConcat, type TerraformResource, Tokenization } from "cdktf";
import type { IConstruct } from "constructs";

export {
  App,
  DataResource,
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

/** Address of a resource, `docker_volume.x`: for places that take no expression, as `replace_triggered_by`. */
export function addressOf(resource: TerraformResource): string {
  return `${resource.terraformResourceType}.${resource.friendlyUniqueId}`;
}

/** `value` as it will be written: a token that stands for an attribute is `${docker_volume.x.name}`. */
export function asWritten(scope: IConstruct, value: unknown): unknown {
  const resolver = new DefaultTokenResolver(new StringConcat());
  return Tokenization.resolve(value, { scope, resolver, preparing: false });
}
