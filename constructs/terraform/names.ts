import type { IConstruct } from "constructs";
import { TerraformStack } from "./cdktf.ts";

/** Name of a construct within its stack: the ids from the stack to the construct, joined with `-`. */
export function nameInStack(construct: IConstruct): string {
  const { scopes } = construct.node;
  return scopes
    .slice(scopes.indexOf(TerraformStack.of(construct)) + 1)
    .map(({ node }) => node.id)
    .join("-");
}

/** Name of an object on a Docker engine, which several stacks may share: the stack and {@link nameInStack}. */
export function objectName(construct: IConstruct): string {
  return `${TerraformStack.of(construct).node.id}-${nameInStack(construct)}`;
}
