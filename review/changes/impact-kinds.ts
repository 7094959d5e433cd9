import { type ResourceChange, type StackChange, unchanged } from "../input/change.ts";
import { asTyped } from "../input/resource-types.ts";
import { factsOf, type StackFacts } from "../input/stack-facts.ts";

/** What a change of a resource means for those who use the environment. */
export interface Impact {
  /** A sentence, or a few. */
  readonly text: string;
  /** Services that do not answer meanwhile, or never again. */
  readonly unavailable: readonly string[];
  /** Something is lost that has to be made, or paid for, again. */
  readonly dataLost: boolean;
  /** It does not come back with the change. */
  readonly permanent?: true;
  /** What is worse afterwards: fewer pods answer, or somebody may do or reach more. */
  readonly degrades?: "capacity" | "access";
  /** Somebody may be temporarily unavailable or do without, and nothing says who. */
  readonly interrupts?: true;
}

export const outage = (text: string, unavailable: readonly string[]): Impact => ({
  text,
  unavailable,
  dataLost: false,
});

export const noOutage = (text: string): Impact => outage(text, []);
export const dataLoss = (text: string, down: readonly string[] = []): Impact => ({
  ...outage(text, down),
  dataLost: true,
});

export const interruption = (text: string): Impact => ({ ...noOutage(text), interrupts: true });
export const lessCapacity = (text: string): Impact => ({ ...noOutage(text), degrades: "capacity" });
export const moreAccess = (text: string): Impact => ({ ...noOutage(text), degrades: "access" });

export interface StackComparison {
  readonly change: StackChange;
  readonly before: StackFacts;
  readonly after: StackFacts;
}

export function comparisonOf(change: StackChange): StackComparison {
  return { change, before: factsOf(unchanged(change)), after: factsOf(change) };
}

/** A manifest of an examined kind as the resource of that kind. */
export function typedChange(resource: ResourceChange): ResourceChange {
  const [before, after] = [resource.before, resource.after].map(
    (values) => values && asTyped(resource.type, values),
  );
  const type = (after ?? before)?.type ?? resource.type;
  return type === resource.type
    ? resource
    : { ...resource, type, before: before?.values, after: after?.values };
}

export const removals = new Set(["delete", "replace"]);
