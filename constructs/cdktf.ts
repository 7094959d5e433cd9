/**
 * The only module that imports `cdktf`. A move to its community fork is this file, `package.json` and the name of the
 * command line.
 */
export {
  App,
  DataResource,
  Lazy,
  LocalBackend,
  TerraformOutput,
  TerraformResource,
  TerraformStack,
  TerraformVariable,
  Testing,
} from "cdktf";
