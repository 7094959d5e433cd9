import type { ResourceChange, Values } from "./change.ts";
import { asTyped, baseType, isExaminedType } from "./resource-types.ts";
import { objectName, type StackFacts, titleOf, withoutKey } from "./stack-facts.ts";

/** Name of a resource in sentences: of its service, or its kind and own name (`namespace clipstack`). */
export function subjectOf(
  resource: Pick<ResourceChange, "address" | "type" | "constructPath">,
  values: Values | undefined,
  { services }: Pick<StackFacts, "services">,
): string {
  const address = withoutKey(resource.address);
  const service = services.get(address);
  const { container, deployment } = service?.resources ?? {};
  if (service !== undefined && [container, deployment].includes(address)) return service.name;
  const typed = asTyped(resource.type, values ?? {});
  const base = baseType(typed.type);
  if (/^(terraform_data|null_resource)$/.test(base)) return titleOf(resource);
  const name = base.startsWith("kubernetes_") ? objectName(typed.values).name : typed.values.name;
  const isOwn = isExaminedType(base) && typeof name === "string" && /^[\w./:@-]{1,200}$/.test(name);
  const kind = base.replace(/^[^_]+_/, "").replaceAll("_", " ");
  return `${kind} ${isOwn ? name : nameInModules(resource)}`;
}

export type FactsOfChange = Readonly<Record<"before" | "after", StackFacts>>;

/** `vpc.private[0]` for `module.vpc.aws_subnet.private[0]` */
function nameInModules(resource: Pick<ResourceChange, "address" | "type" | "constructPath">) {
  const title = titleOf(resource);
  return title === resource.address
    ? title.replaceAll(/(^|\.)(module|data|ephemeral)\./g, "$1").replace(`${resource.type}.`, "")
    : title;
}

/** {@link subjectOf} a changed resource. */
export function changedSubject(resource: ResourceChange, { before, after }: FactsOfChange): string {
  const facts = before.services.has(withoutKey(resource.address)) ? before : after;
  return subjectOf(resource, resource.before ?? resource.after, facts);
}

/** Name of a resource of which only the address is known. */
export function subjectAt(address: string): string {
  const [, type = ""] = /(\w+)\.[\w-]+$/.exec(withoutKey(address)) ?? [];
  return subjectOf({ address, type }, undefined, { services: new Map() });
}
