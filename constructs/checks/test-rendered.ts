import { type Finding, renderFinding } from "./findings.ts";

/** Wraps a check to return rendered findings. */
export function rendered<Arguments extends readonly unknown[]>(
  run: (...args: Arguments) => readonly Finding[],
): (...args: Arguments) => readonly string[] {
  return (...args) => run(...args).map(renderFinding);
}
