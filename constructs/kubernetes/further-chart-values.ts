import { finding } from "../checks/findings.ts";
import type { ChartValues } from "./chart-values.ts";

/** Chart values of a user, merged into those that the other settings determine. */

type Values = Readonly<Record<string, unknown>>;

/** Values that only the other settings determine, even where they leave the chart's default. */
const determined: ReadonlySet<string> = new Set([
  "imagePullSecrets",
  "nameOverride",
  "fullnameOverride",
  "models",
  "model",
  "gpuResourceName",
  "quota",
  ...["embed", "triton"].flatMap((component) =>
    ["enabled", "backend", "replicas", "spareGpu", "resources"].map((key) => `${component}.${key}`),
  ),
  "embed.accelerator",
  "embed.allowPlaintext",
  "embed.auth",
  "embed.tls",
  "triton.allowPlaintext",
  "triton.allowUnauthenticated",
  "triton.engineCache",
  "triton.gpus",
  "triton.modelConfig",
  "triton.modelKind",
  "triton.server",
  "triton.service.type",
]);

/** Returns one finding for each value of `further` that the other settings determine. */
export function furtherValuesFindings(further: ChartValues, values: ChartValues): string[] {
  return conflicts(further, values, "").map((path) =>
    finding(`chartValues.${path}`, "be absent: other settings determine it"),
  );
}

/** Merges objects; lists and other values of `further` replace those of `values`. */
export function withFurtherValues(values: ChartValues, further: ChartValues): ChartValues {
  return merged(values as Values, further as Values) as ChartValues;
}

function conflicts(further: unknown, value: unknown, path: string): readonly string[] {
  if (determined.has(path)) return [path];
  if (isObject(further) && (value === undefined || isObject(value))) {
    return Object.entries(further).flatMap(([key, inner]) =>
      conflicts(inner, value?.[key], path === "" ? key : `${path}.${key}`),
    );
  }
  return value === undefined ? [] : [path];
}

function merged(values: Values, further: Values): Values {
  const both = Object.entries(further).map(([key, inner]) => {
    const value = values[key];
    return [key, isObject(value) && isObject(inner) ? merged(value, inner) : inner] as const;
  });
  return { ...values, ...Object.fromEntries(both) };
}

function isObject(value: unknown): value is Values {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
