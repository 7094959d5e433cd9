import { UserError } from "../../contract/user-error.ts";
import {
  loadEnvironments,
  shippedEnvironments,
  shippedStacks,
} from "../../stacks/settings/environment-files.ts";
import type { StackName } from "../../stacks/settings/settings.ts";
import { environmentsFolder } from "./project.ts";

/** Environment of a command line that names none: the shipped environment of `stack`, otherwise its only one. */
export function defaultEnvironment(stack: StackName): string {
  const { environments, rejected } = loadEnvironments(environmentsFolder());
  const shipped = shippedEnvironments.find((name) => shippedStacks[name] === stack);
  const names = [...environments, ...rejected].map(({ name }) => name);
  if (shipped !== undefined && names.includes(shipped)) return shipped;
  const [only, ...others] = environments.filter((environment) => environment.stack === stack);
  if (only !== undefined && others.length === 0) return only.name;
  throw new UserError(`name an environment: one of ${names.sort().join(", ")}`);
}
