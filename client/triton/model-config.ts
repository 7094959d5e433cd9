import { readFileSync } from "node:fs";
import protobuf from "protobufjs";
import textFormat from "protobufjs/ext/textformat.js";
import type { InstanceGroup, ModelConfig, ModelWarmup } from "../../contract/model-config.ts";
import { withoutNulls } from "./responses.ts";

/**
 * Model configuration in the JSON of Triton's `GET /v2/models/<model>/config`. Keys are the field
 * names of `model_config.proto`; enums are their names and integers are JSON numbers. Fields without
 * a value have their default. Also contains the fields for which this interface has no property.
 */
export interface ModelConfigJson extends ModelConfig, Readonly<Record<string, unknown>> {
  readonly platform: string;
  readonly backend: string;
  readonly instance_group: readonly InstanceGroup[];
  readonly model_warmup: readonly ModelWarmup[];
  readonly default_model_filename: string;
}

/** Error in a `config.pbtxt`, with its line: `config.pbtxt:3: integer value expected: max_batch_size: many`. */
export class ModelConfigError extends Error {
  override readonly name = "ModelConfigError";
}

/**
 * Reads a `config.pbtxt` (protobuf text format) against Triton's `model_config.proto`.
 *
 * Adds the defaults of a model loaded by Triton: the backend of the platform and vice versa, `version_policy` (the latest), pinned
 * memory and the model's file name. Defaults that depend on the host are not added: an absent `instance_group` is `[]`.
 *
 * @param file - Name for messages.
 * @throws {ModelConfigError} for the first error
 */
export function readModelConfig(text: string, file: string): ModelConfigJson {
  const type = modelConfigType();
  let message: protobuf.Message;
  try {
    message = textFormat.fromText(type, text);
  } catch (error) {
    throw new ModelConfigError(`${file}${withLine(text, (error as Error).message)}`, {
      cause: error,
    });
  }
  const json = type.toObject(message, {
    defaults: true,
    enums: String,
    longs: Number,
    json: true, // NaN and infinities as strings
  });
  return withTritonDefaults(withoutNulls(json)) as ModelConfigJson;
}

/** Formats a parser error as `:3: <rule>: <line>`. The library does not always report the line. */
function withLine(text: string, message: string): string {
  const lines = text.split("\n");
  const [, rule = message, stated] = /^\.?(.*?)(?: \(line (\d+)\))?$/.exec(message) ?? [];
  const index =
    stated === undefined
      ? lines.findIndex((_, i) => problemOf(lines.slice(0, i + 1).join("\n")) === message)
      : Number(stated) - 1;
  return `:${index + 1}: ${rule}: ${lines[index]?.trim().slice(0, 100)}`;
}

function problemOf(text: string): string | undefined {
  try {
    textFormat.fromText(modelConfigType(), text);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/**
 * Returns the fields set in a `config.pbtxt` and their values in text format: `instance_group[0].count` is `1`, an empty message is
 * `{ }`. The key of a repeated message is its `name` or its index; a single message without a name has no key.
 *
 * @throws {Error} if the text is not a model configuration.
 */
export function modelConfigFields(text: string): ReadonlyMap<string, string> {
  const type = modelConfigType();
  return new Map(fieldsOf(type, textFormat.fromText(type, text) as unknown as Json, ""));
}

function* fieldsOf(
  type: protobuf.Type,
  message: Json,
  prefix: string,
): Generator<[string, string]> {
  for (const field of type.fieldsArray) {
    if (!Object.hasOwn(message, field.name)) continue;
    const value = message[field.name];
    const path = `${prefix}${field.name}`;
    if (field instanceof protobuf.MapField) {
      for (const [key, item] of Object.entries(value as Json)) {
        yield* entriesOf(field, item, `${path}[${key}]`);
      }
    } else if (field.repeated && field.resolvedType instanceof protobuf.Type) {
      const items = value as readonly Json[];
      for (const [i, item] of items.entries()) {
        const key = item.name || (items.length > 1 ? String(i) : "");
        yield* entriesOf(field, item, key === "" ? path : `${path}[${key}]`);
      }
    } else yield* entriesOf(field, value, path);
  }
}

function* entriesOf(
  { resolvedType, type }: protobuf.FieldBase,
  value: unknown,
  path: string,
): Generator<[string, string]> {
  if (resolvedType instanceof protobuf.Type) {
    const fields = [...fieldsOf(resolvedType, value as Json, `${path}.`)];
    yield* fields.length === 0 ? [[path, "{ }"] as [string, string]] : fields;
    return;
  }
  const scalar = (item: unknown): string => {
    if (resolvedType instanceof protobuf.Enum) return resolvedType.valuesById[Number(item)] ?? "";
    return type === "string" ? JSON.stringify(item) : String(item);
  };
  yield [path, Array.isArray(value) ? `[${value.map(scalar).join(", ")}]` : scalar(value)];
}

let cachedType: protobuf.Type | undefined;

/** Message type `ModelConfig` of `model_config.proto`. */
export function modelConfigType(): protobuf.Type {
  cachedType ??= protobuf
    .parse(readFileSync(new URL("./proto/model_config.proto", import.meta.url), "utf8"), {
      keepCase: true,
    })
    .root.resolveAll()
    .lookupType("inference.ModelConfig");
  return cachedType;
}

/** Backend and default file name of each platform (Triton core, `model_config_utils.cc`). */
const platforms = [
  { platform: "onnxruntime_onnx", backend: "onnxruntime", file: "model.onnx" },
  { platform: "tensorrt_plan", backend: "tensorrt", file: "model.plan" },
  { platform: "pytorch_libtorch", backend: "pytorch", file: "model.pt" },
  { platform: "", backend: "python", file: "model.py" },
] as const;

/** Implements `NormalizeModelConfig` of Triton core, without defaults that depend on the host. */
function withTritonDefaults(config: Json): Json {
  const known = platforms.find(({ platform, backend }) =>
    config.platform ? config.platform === platform : config.backend === backend,
  );
  const version_policy = config.version_policy ?? { latest: { num_versions: 1 } };
  // an ensemble has no instances, memory or file
  if (config.ensemble_scheduling !== undefined) {
    return { model_transaction_policy: { decoupled: false }, ...config, version_policy };
  }
  return {
    ...config,
    platform: config.platform || (known?.platform ?? ""),
    backend: config.backend || (known?.backend ?? ""),
    version_policy,
    optimization: {
      priority: "PRIORITY_DEFAULT",
      input_pinned_memory: { enable: true },
      output_pinned_memory: { enable: true },
      gather_kernel_buffer_threshold: 0,
      eager_batching: false,
      ...(config.optimization as Json | undefined),
    },
    default_model_filename: config.default_model_filename || (known?.file ?? ""),
  };
}

type Json = Readonly<Record<string, unknown>>;
