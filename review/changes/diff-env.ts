import { hidden, isKnownVariable, isSecretName, variableText } from "../input/secrets.ts";
import { isObject } from "../input/value-paths.ts";
import { type DiffLine, lineOf } from "./diff-line.ts";

/** Environment variable, from `NAME=value` or from a block with `name` and `value`. */
interface Variable {
  readonly name: string;
  readonly value: string;
  readonly secret: boolean;
}

/** Returns whether an attribute is a list of environment variables. */
export function isEnvironmentList(key: string, value: unknown): boolean {
  return /^(env|environment)$/.test(key) && Array.isArray(value) && value.length > 0;
}

interface EnvironmentListOptions {
  readonly label: string;
  readonly marked: boolean;
  readonly isSecretBefore: (index: number) => boolean;
  readonly isSecretAfter: (index: number) => boolean;
}

/**
 * Changes of environment variables by name.
 *
 * @param marked - Whether the whole list is sensitive, so that only names are printed.
 * @param isSecretBefore - Whether a list item is or contains a secret.
 */
export function diffEnvironment(
  before: unknown,
  after: unknown,
  { marked, label, isSecretBefore, isSecretAfter }: EnvironmentListOptions,
): readonly DiffLine[] {
  const [left, right] = [variablesIn(before, isSecretBefore), variablesIn(after, isSecretAfter)];
  const names = [...new Set([...left.keys(), ...right.keys()])].sort();
  const printable = (it: Variable | undefined) =>
    it && (marked || it.secret ? hidden : variableText(it.name, it.value, false));
  const lines = names
    .filter((name) => left.get(name)?.value !== right.get(name)?.value)
    .map((name) => ({ name, old: left.get(name), current: right.get(name) }));
  const isNamed = ({ name }: { readonly name: string }) =>
    !marked || isKnownVariable(name) || /^[A-Z][A-Z0-9_]{0,40}$/.test(name);
  const others = lines.filter((it) => !isNamed(it)).length;
  return [
    ...lines
      .filter(isNamed)
      .map(({ name, old, current }) =>
        lineOf(`${label} ${name}`, printable(old), printable(current)),
      ),
    ...(others === 0
      ? []
      : [
          lineOf(
            `${label}: ${others} other ${others === 1 ? "variable" : "variables"}`,
            hidden,
            hidden,
          ),
        ]),
  ];
}

function variablesIn(
  value: unknown,
  isSecret: (index: number) => boolean,
): ReadonlyMap<string, Variable> {
  const found = new Map<string, Variable>();
  for (const [index, item] of (Array.isArray(value) ? value : []).entries()) {
    const variable = variableOf(item);
    if (variable === undefined) continue;
    found.set(variable.name, { ...variable, secret: variable.secret || isSecret(index) });
  }
  return found;
}

function variableOf(item: unknown): Variable | undefined {
  if (typeof item === "string") {
    const [, name, value] = /^([^=]+)=(.*)$/s.exec(item) ?? [];
    if (name === undefined || value === undefined) return undefined;
    return { name, value, secret: isSecretName(name) };
  }
  if (!isObject(item) || typeof item.name !== "string") return undefined;
  const { name, value, ...source } = item;
  // the name of a Secret and its key are not secret
  return typeof value === "string" && value !== ""
    ? { name, value, secret: isSecretName(name) }
    : { name, value: JSON.stringify(source), secret: false };
}
