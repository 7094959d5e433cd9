import { describe, expect, test } from "vitest";
import { z } from "zod";
import { findingsOf } from "../constructs/checks/findings.ts";
import { Testing } from "../constructs/terraform/cdktf.ts";
import { createStack } from "./create-stack.ts";
import { parseEnvironment, type StackName, stackSchemas } from "./settings/settings.ts";
import type { JsonSchema } from "./settings/settings-docs.ts";

/** A setting that no construct reads is a mistake: a changed value must change the stack or its findings. */

type Settings = Readonly<Record<string, unknown>>;

/** Blocks of settings whose keys are tested, with the settings around them. */
const blocks: readonly (readonly [StackName, string, Settings])[] = [
  ["single-gpu", "embed", {}],
  ["single-gpu", "tritonTrt", { tritonOnnx: { enabled: false } }],
  ["multi-gpu", "embed", {}],
  ["multi-gpu", "perGpu", { topology: "per-gpu", perGpu: { backend: "tensorrt", gpus: [0] } }],
  ["single-gpu", "monitoring", { monitoring: { enabled: true } }],
  ["kind", "embed", {}],
  ["kubernetes", "embed", {}],
  ["kubernetes", "triton", { triton: { backend: "tensorrt", engineCache: { enabled: true } } }],
];

const tls = { certificate: "/etc/clipstack/tls.crt", key: "/etc/clipstack/tls.key" };

const acme = {
  domain: "embed.example.com",
  email: "ops@example.com",
  directory: "https://acme.example.com/directory",
  ca: "/etc/clipstack/acme.pem",
  image: "caddy:2",
};

/** Settings without which a key has no effect. */
const prerequisites: Settings = {
  "single-gpu monitoring.enabled": { monitoring: { enabled: false } },
  "single-gpu monitoring.keyFile": { embed: { keys: "/etc/clipstack/keys.json" } },
  "single-gpu embed.upstream": { embed: { backend: "triton" } },
  "single-gpu embed.upstreams": { embed: { backend: "triton" } },
  "single-gpu embed.allowPlaintext": { embed: { expose: "all-interfaces" } },
  "multi-gpu embed.allowPlaintext": { embed: { expose: "all-interfaces" } },
  "single-gpu tritonTrt.allowPlaintext": { tritonTrt: { expose: "all-interfaces" } },
  "multi-gpu perGpu.allowPlaintext": { perGpu: { expose: "all-interfaces" } },
  ...Object.fromEntries(
    ["single-gpu", "multi-gpu"].flatMap((stack) =>
      Object.keys(acme).map((key) => [
        `${stack} embed.tls.acme.${key}`,
        { embed: { expose: "all-interfaces", tls: { acme } } },
      ]),
    ),
  ),
  "single-gpu embed.tls.certificate": { embed: { tls } },
  "single-gpu embed.tls.key": { embed: { tls } },
  "multi-gpu embed.tls.certificate": { embed: { tls } },
  "multi-gpu embed.tls.key": { embed: { tls } },
  "single-gpu tritonTrt.allowUnauthenticated": { tritonTrt: { expose: "all-interfaces" } },
  "multi-gpu perGpu.allowUnauthenticated": { perGpu: { expose: "all-interfaces" } },
  "multi-gpu perGpu.backend": { perGpu: { backend: "onnxruntime" } },
  "kubernetes embed.allowPlaintext": { embed: { service: "NodePort" } },
  "kubernetes triton.backend": { triton: { backend: "onnxruntime" } },
  "kubernetes triton.engineCache.enabled": { triton: { engineCache: { enabled: false } } },
};

/** Values of settings that are text or lists, by the name or the path of the setting. */
const texts: Settings = {
  "monitoring.images.prometheus": "registry.example/prometheus:1.0",
  "monitoring.images.grafana": "registry.example/grafana:1.0",
  dcgm: "registry.example/dcgm:1.0",
  keyFile: "/etc/prometheus/key",
  image: "registry.example/other:1.0",
  keySecret: "token",
  keysSecret: "clients",
  secret: "certificate",
  certificate: "/etc/other/tls.crt",
  key: "/etc/other/tls.key",
  keys: "/etc/other/keys.json",
  domain: "other.example.com",
  email: "other@example.com",
  directory: "https://other.example.com/directory",
  ca: "/etc/other/acme.pem",
  storageClass: "fast",
  prometheus: "http://prometheus.example",
  alertmanagers: ["http://alertmanager.example:9093"],
  imageUrlHosts: ["images.example"],
  upstreams: [{ grpc: "gpu-2:8011" }],
};

/** Returns a valid value other than the default. */
function otherValue(path: string, schema: JsonSchema): unknown {
  const { type, enum: choices, default: current, minimum = 1 } = schema;
  const key = path.split(".").at(-1) ?? "";
  if (type === "boolean") return current !== true;
  if (choices !== undefined) return choices.find((choice) => choice !== current);
  if (type === "integer" || type === "number") return current === minimum ? minimum + 1 : minimum;
  if (path in texts) return texts[path];
  if (key in texts) return texts[key];
  if (type === "array") return [1];
  throw new Error(`texts must have a value for ${key}`);
}

/** Paths of the settings below `path`, each with a value other than its default. */
function changes(path: string, schema: JsonSchema): readonly (readonly [string, unknown])[] {
  const properties = Object.entries(schema.properties ?? {});
  if (properties.length === 0) return [[path, otherValue(path, schema)]];
  return properties.flatMap(([key, property]) => changes(`${path}.${key}`, property));
}

function merge(first: Settings, second: Settings): Settings {
  const merged: Record<string, unknown> = { ...first };
  for (const [key, value] of Object.entries(second)) {
    const isMap = typeof value === "object" && value !== null && !Array.isArray(value);
    merged[key] = isMap ? merge((merged[key] ?? {}) as Settings, value as Settings) : value;
  }
  return merged;
}

function nested(path: string, value: unknown): Settings {
  return path
    .split(".")
    .reduceRight<unknown>((inner, key) => ({ [key]: inner }), value) as Settings;
}

const outcomes = new Map<string, string>();

function outcome(stack: StackName, settings: Settings): string {
  const yaml = JSON.stringify({ stack, ...settings });
  const known = outcomes.get(yaml);
  if (known !== undefined) return known;
  const synthesized = createStack(Testing.app(), parseEnvironment("x", "x", yaml));
  const result = JSON.stringify([synthesized.toTerraform(), findingsOf(synthesized)]);
  outcomes.set(yaml, result);
  return result;
}

describe.each(blocks)("%s, %s", (stack, block, around) => {
  const schema = z.toJSONSchema(stackSchemas[stack], { io: "input" }) as JsonSchema;
  const settings = changes(block, schema.properties?.[block] ?? {});

  test.each(settings)("%s has an effect", (path, value) => {
    const before = merge(around, (prerequisites[`${stack} ${path}`] ?? {}) as Settings);
    expect(outcome(stack, merge(before, nested(path, value)))).not.toBe(outcome(stack, before));
  });
});
