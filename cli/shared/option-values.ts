import { InvalidArgumentError } from "commander";

/** Parsers of option values, for commander. Each throws {@link InvalidArgumentError} with the rule. */

type Parse<T> = (text: string) => T;

function numberThat(isValid: (value: number) => boolean, rule: string): Parse<number> {
  return (text) => {
    const value = text.trim() === "" ? Number.NaN : Number(text);
    if (!isValid(value)) throw new InvalidArgumentError(`It must be ${rule}.`);
    return value;
  };
}

/** Parses an integer from `min` to `max`. */
export function wholeNumber(min: number, max: number): Parse<number> {
  return numberThat(
    (value) => Number.isInteger(value) && value >= min && value <= max,
    `a whole number from ${min} to ${max}`,
  );
}

/** Parses a number from `min` to `max`. */
export function numberFrom(min: number, max: number): Parse<number> {
  return numberThat((value) => value >= min && value <= max, `a number from ${min} to ${max}`);
}

/** Parses a number above 0 and at most `max`. */
export function numberUpTo(max: number): Parse<number> {
  return numberThat((value) => value > 0 && value <= max, `more than 0 and at most ${max}`);
}

/** Parses a percentage such as `10%` or `10` as a fraction. */
export function percentage(min: number, max: number): Parse<number> {
  const parse = numberThat(
    (value) => value >= min && value <= max,
    `a percentage from ${min} to ${max}, like 10%`,
  );
  return (text) => parse(text.trim().replace(/\s*%$/, "")) / 100;
}

/** Parses text that matches a pattern. */
export function textMatching(pattern: RegExp, rule: string): Parse<string> {
  return (text) => {
    if (!pattern.test(text)) throw new InvalidArgumentError(rule);
    return text;
  };
}

/** Parses an offset that is added to every local port. */
export const portOffset = wholeNumber(-65_535, 65_535);

/** Parses values separated by commas, without duplicates. */
export function listOf<T>(parse: Parse<T>): Parse<readonly T[]> {
  return (text) => [...new Set(text.split(",").map((word) => parse(word.trim())))];
}

/** Collects the values of a repeatable option. */
export function repeated<T>(parse: Parse<T>) {
  return (text: string, before: readonly T[] = []): readonly T[] => [...before, parse(text)];
}
