import { type ResourceChange, type StackChange, stateBefore } from "../input/change.ts";
import { asTyped } from "../input/resource-types.ts";
import { factsOf, type StackFacts } from "../input/stack-facts.ts";

/** Impact of a resource change on the environment's services and users. */
export interface Impact {
  /** One or more sentences. */
  readonly text: string;
  /** Services that are unavailable, temporarily or permanently. */
  readonly unavailable: readonly string[];
  /** Whether data is lost that must be recreated. */
  readonly dataLost: boolean;
  /** Whether the service stays unavailable after the change. */
  readonly permanent?: true;
  /** Permanent degradation: less capacity, or wider permissions or network access. */
  readonly degrades?: "capacity" | "access";
  /** Whether the old object continues to exist without being managed. */
  readonly isForgotten?: true;
  /** Whether unknown clients may be interrupted. */
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
  return { change, before: factsOf(stateBefore(change)), after: factsOf(change) };
}

/** Converts a manifest of an examined kind to the typed resource. */
export function asTypedChange(resource: ResourceChange): ResourceChange {
  const [before, after] = [resource.before, resource.after].map(
    (values) => values && asTyped(resource.type, values),
  );
  const type = (after ?? before)?.type ?? resource.type;
  return type === resource.type
    ? resource
    : { ...resource, type, before: before?.values, after: after?.values };
}

export const removals = new Set(["delete", "replace"]);
