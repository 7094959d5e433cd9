import { z } from "zod";
import {
  labelKeyPattern,
  labelValuePattern,
  objectNamePattern,
  secretKeyPattern,
} from "../../contract/kubernetes-names.ts";

/** Field types of the chart values, each with its default and description. */

export const integer = (min: number, max: number) => z.int().min(min).max(max);
export const flag = (on: boolean, description: string) =>
  z.boolean().default(on).describe(description);
export const text = (fallback: string, description: string) =>
  z.string().default(fallback).describe(description);

export const choice = <const Options extends readonly [string, ...string[]]>(
  options: Options,
  fallback: Options[number],
  description: string,
) =>
  z
    .enum(options)
    .default(fallback as never)
    .describe(description);

/** Text that matches a pattern, or empty text. */
export const matching = (pattern: string, description: string) =>
  z
    .string()
    .regex(new RegExp(`^(${pattern})?$`))
    .default("")
    .describe(description);

/** Kubernetes quantity: `250m`, `1536Mi`, or a number. */
export const quantity = z.union([
  z.string().regex(/^\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/),
  z.number().min(0),
]);
/** Quantity of each resource: `cpu`, `memory`, … */
export const quantities = z.record(z.string(), quantity);
export const stringMap = (description: string) =>
  z.record(z.string(), z.string()).default({}).describe(description);
export const labelKey = z.string().regex(labelKeyPattern);
export const labelValue = z.string().regex(labelValuePattern);
export const labels = (description: string) =>
  z.record(labelKey, labelValue).default({}).describe(description);
export const annotations = (description: string) =>
  z.record(labelKey, z.string()).default({}).describe(description);

/** Name of an object. */
export const objectName = z.string().max(253).regex(objectNamePattern);
/** Name of an existing object, or empty text. */
export const reference = (description: string) =>
  z
    .string()
    .max(253)
    .regex(new RegExp(`^(${objectNamePattern.source.slice(1, -1)})?$`))
    .default("")
    .describe(description);
export const secretKey = z.string().regex(secretKeyPattern);

/** Object of the Kubernetes API that the chart does not inspect. */
export const kubernetesObject = z.record(z.string(), z.unknown());
