/** One property, declared and deployed, as text; equal texts match. */
export interface Aspect {
  /** Name in messages: "user must be …". */
  readonly name: string;
  readonly declared: string;
  readonly found: string;
}

/** Returns the aspects that differ. Terraform expressions in the declared text match anything. */
export function differences(aspects: readonly Aspect[]): readonly Aspect[] {
  return aspects.filter(({ declared, found }) => !matches(declared, found));
}

function matches(declared: string, found: string): boolean {
  if (!declared.includes("${")) return declared === found;
  const pattern = declared
    .split(/\$\{(?:[^{}]|\{[^{}]*\})*\}/)
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    .join("[\\s\\S]*");
  return new RegExp(`^${pattern}$`).test(found);
}
