import { readFileSync } from "node:fs";
import protobuf from "protobufjs";
import type { InstanceGroup, ModelConfig, ModelWarmup } from "../contract/model-config.ts";
import { PbtxtError, type PbtxtField, type PbtxtValue, parsePbtxt } from "../contract/pbtxt.ts";

/**
 * A model configuration in JSON, as Triton gives it at `/v2/models/M/config`: every field of `model_config.proto` by its
 * own name, enums by name, integers as numbers, and defaults filled in. What is not listed here is there too.
 */
export interface ModelConfigJson extends ModelConfig, Readonly<Record<string, unknown>> {
  readonly platform: string;
  readonly backend: string;
  readonly instance_group: readonly InstanceGroup[];
  readonly model_warmup: readonly ModelWarmup[];
  readonly default_model_filename: string;
}

/**
 * Read a `config.pbtxt` (protobuf text format) against Triton's `model_config.proto`.
 *
 * Filled in as Triton does for a model that is loaded: the backend that goes with the platform and the other way round,
 * `version_policy` (the latest), pinned memory, the model's file name. Not filled in is what depends on the host: an
 * `instance_group` that is not given is `[]`.
 *
 * @param file - Name for messages.
 * @throws {PbtxtError} at the first mistake: `file:line:column: rule and value`.
 */
export function readModelConfig(text: string, file: string): ModelConfigJson {
  const fields = parsePbtxt(text, file);
  const config = new Reader(file).message(modelConfigType(), fields, "");
  return withTritonDefaults(config) as ModelConfigJson;
}

let cachedType: protobuf.Type | undefined;

/** The message of a model configuration, as `model_config.proto` has it. */
export function modelConfigType(): protobuf.Type {
  cachedType ??= protobuf
    .parse(readFileSync(new URL("./proto/model_config.proto", import.meta.url), "utf8"), {
      keepCase: true,
    })
    .root.resolveAll()
    .lookupType("inference.ModelConfig");
  return cachedType;
}

/** Which backend runs a platform, and the file it looks for (Triton core, `model_config_utils.cc`). */
const platforms = [
  { platform: "onnxruntime_onnx", backend: "onnxruntime", file: "model.onnx" },
  { platform: "tensorrt_plan", backend: "tensorrt", file: "model.plan" },
  { platform: "pytorch_libtorch", backend: "pytorch", file: "model.pt" },
  { platform: "", backend: "python", file: "model.py" },
] as const;

/** `NormalizeModelConfig` of Triton core, without what depends on the host. */
function withTritonDefaults(config: Json): Json {
  const known = platforms.find(({ platform, backend }) =>
    config.platform ? config.platform === platform : config.backend === backend,
  );
  const type = modelConfigType();
  const versions = config.version_policy ?? { latest: { num_versions: 1 } };
  // an ensemble has no instances, no memory and no file of its own
  if (config.ensemble_scheduling !== undefined) {
    const policy = config.model_transaction_policy ?? { decoupled: false };
    return inOrder(type, {
      ...config,
      version_policy: versions,
      model_transaction_policy: policy,
    });
  }
  const optimization = type.fields.optimization?.resolvedType as protobuf.Type;
  return inOrder(type, {
    ...config,
    platform: config.platform || (known?.platform ?? ""),
    backend: config.backend || (known?.backend ?? ""),
    version_policy: versions,
    optimization: inOrder(optimization, {
      priority: "PRIORITY_DEFAULT",
      input_pinned_memory: { enable: true },
      output_pinned_memory: { enable: true },
      gather_kernel_buffer_threshold: 0,
      eager_batching: false,
      ...(config.optimization as Json | undefined),
    }),
    default_model_filename: config.default_model_filename || (known?.file ?? ""),
  });
}

/** The fields in the order of the .proto file, as Triton prints them. */
function inOrder(type: protobuf.Type, json: Json): Json {
  return Object.fromEntries(
    type.fieldsArray.flatMap(({ name }) => (name in json ? [[name, json[name]]] : [])),
  );
}

type Json = Record<string, unknown>;

const integerRanges: Readonly<Record<string, readonly [bigint, bigint]>> = {
  int32: [-(2n ** 31n), 2n ** 31n - 1n],
  int64: [-(2n ** 63n), 2n ** 63n - 1n],
  uint32: [0n, 2n ** 32n - 1n],
  uint64: [0n, 2n ** 64n - 1n],
};

const booleans: Readonly<Record<string, boolean>> = {
  true: true,
  True: true,
  t: true,
  "1": true,
  false: false,
  False: false,
  f: false,
  "0": false,
};

/** Turns the tree of a text-format file into JSON, by the message types of the .proto file. */
class Reader {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  message(type: protobuf.Type, fields: readonly PbtxtField[], path: string): Json {
    const found: Json = {};
    const oneofs = new Map<protobuf.OneOf, string>();
    for (const entry of fields) {
      const field = Object.hasOwn(type.fields, entry.name) ? type.fields[entry.name] : undefined;
      if (field === undefined) {
        throw this.#error(
          entry,
          `Message type "${type.fullName.slice(1)}" has no field named "${entry.name}"`,
        );
      }
      const name = path === "" ? entry.name : `${path}.${entry.name}`;
      const items = entry.value.kind === "list" ? entry.value.items : [entry.value];
      if (field instanceof protobuf.MapField) {
        const map = new Map(Object.entries(found[field.name] ?? {}));
        for (const item of items) map.set(...this.#mapEntry(field, item, name));
        found[field.name] = Object.fromEntries(map);
      } else if (field.repeated) {
        const list = (found[field.name] ?? []) as unknown[];
        list.push(...items.map((item) => this.#value(field, item, name)));
        found[field.name] = list;
      } else {
        if (entry.value.kind === "list") {
          throw this.#error(entry.value, `${name} must be one value, got a list`);
        }
        if (field.name in found)
          throw this.#error(entry, `${name} must be given once, got it twice`);
        if (field.partOf) {
          const other = oneofs.get(field.partOf);
          if (other !== undefined) {
            throw this.#error(entry, `${name} and ${other} must not be given together`);
          }
          oneofs.set(field.partOf, name);
        }
        found[field.name] = this.#value(field, entry.value, name);
      }
    }
    return this.#withDefaults(type, found);
  }

  /** Every field in the order of the .proto file; what was not given as its default, except messages and `oneof`s. */
  #withDefaults(type: protobuf.Type, found: Json): Json {
    const json: Json = {};
    for (const field of type.fieldsArray) {
      if (field.name in found) json[field.name] = found[field.name];
      else if (field instanceof protobuf.MapField) json[field.name] = {};
      else if (field.repeated) json[field.name] = [];
      else if (field.partOf || field.resolvedType instanceof protobuf.Type) continue;
      else json[field.name] = defaultOf(field);
    }
    return json;
  }

  #mapEntry(field: protobuf.MapField, value: PbtxtValue, path: string): [string, unknown] {
    if (value.kind !== "message") {
      throw this.#error(
        value,
        `${path} must be an entry, { key: … value: … }, got ${shown(value)}`,
      );
    }
    const given = new Map<string, PbtxtValue>();
    for (const part of value.fields) {
      if (part.name !== "key" && part.name !== "value") {
        throw this.#error(part, `an entry of ${path} has key and value, got '${part.name}'`);
      }
      if (given.has(part.name)) {
        throw this.#error(part, `${path}.${part.name} must be given once, got it twice`);
      }
      given.set(part.name, part.value);
    }
    const [keyValue, contentValue] = [given.get("key"), given.get("value")];
    const emptyKey = field.keyType === "string" ? "" : 0;
    const key =
      keyValue === undefined ? emptyKey : this.#scalar(field.keyType, keyValue, `${path}.key`);
    return [String(key), this.#entryValue(field, contentValue, `${path}.value`)];
  }

  #entryValue(field: protobuf.MapField, value: PbtxtValue | undefined, path: string): unknown {
    if (value !== undefined) return this.#value(field, value, path);
    const type = field.resolvedType;
    return type instanceof protobuf.Type ? this.message(type, [], path) : defaultOf(field);
  }

  #value(field: protobuf.FieldBase, value: PbtxtValue, path: string): unknown {
    const type = field.resolvedType;
    if (type instanceof protobuf.Type) {
      if (value.kind === "message") return this.message(type, value.fields, path);
      throw this.#error(value, `${path} must be a message, { … }, got ${shown(value)}`);
    }
    if (type instanceof protobuf.Enum) return this.#enum(type, value, path);
    return this.#scalar(field.type, value, path);
  }

  #enum(type: protobuf.Enum, value: PbtxtValue, path: string): string {
    if (value.kind === "identifier" && Object.hasOwn(type.values, value.text)) return value.text;
    if (value.kind === "number") {
      const name = type.valuesById[Number(value.text)];
      if (name !== undefined) return name;
    }
    const names = Object.keys(type.values).join(", ");
    throw this.#error(value, `${path} must be one of ${names}, got ${shown(value)}`);
  }

  #scalar(type: string, value: PbtxtValue, path: string): unknown {
    switch (type) {
      case "string":
        if (value.kind === "string") return value.text;
        throw this.#error(value, `${path} must be a string in quotes, got ${shown(value)}`);
      case "bool": {
        const bool =
          value.kind === "identifier" || value.kind === "number" ? booleans[value.text] : undefined;
        if (bool !== undefined) return bool;
        throw this.#error(value, `${path} must be true or false, got ${shown(value)}`);
      }
      case "float":
      case "double":
        return this.#float(value, path);
      default:
        return this.#integer(type, value, path);
    }
  }

  #float(value: PbtxtValue, path: string): number | string {
    if (value.kind === "number" && !/^-?0[xX]/.test(value.text)) {
      const number = Number(value.text.replace(/[fF]$/, ""));
      if (!Number.isNaN(number)) return number;
    }
    // JSON has no such numbers: protobuf writes them as words
    if (value.kind === "identifier" || value.kind === "number") {
      const word = /^(-?)(?:(inf|infinity)|nan)$/i.exec(value.text);
      if (word) return word[2] === undefined ? "NaN" : `${word[1]}Infinity`;
    }
    throw this.#error(value, `${path} must be a number, got ${shown(value)}`);
  }

  /** A number where it is exact, else its digits. */
  #integer(type: string, value: PbtxtValue, path: string): number | string {
    const range = integerRanges[type];
    const match =
      value.kind === "number"
        ? /^(-?)(0[xX][0-9A-Fa-f]+|0[0-7]*|[1-9]\d*)$/.exec(value.text)
        : null;
    if (match === null || range === undefined) {
      throw this.#error(value, `${path} must be an integer, got ${shown(value)}`);
    }
    const digits = match[2]!;
    const magnitude = BigInt(/^0[0-7]+$/.test(digits) ? `0o${digits.slice(1)}` : digits);
    const integer = match[1] === "-" ? -magnitude : magnitude;
    if (integer < range[0] || integer > range[1]) {
      throw this.#error(value, `${path} must be ${range[0]} to ${range[1]}, got ${shown(value)}`);
    }
    const number = Number(integer);
    return Number.isSafeInteger(number) ? number : String(integer);
  }

  #error({ at }: PbtxtField | PbtxtValue, problem: string): PbtxtError {
    return new PbtxtError(this.#file, at, problem);
  }
}

function defaultOf(field: protobuf.FieldBase): unknown {
  if (field.resolvedType instanceof protobuf.Enum) return field.resolvedType.valuesById[0];
  if (field.type === "string") return "";
  return field.type === "bool" ? false : 0;
}

function shown(value: PbtxtValue): string {
  switch (value.kind) {
    case "message":
      return "a message";
    case "list":
      return "a list";
    case "string":
      return `"${value.text}"`;
    default:
      return `'${value.text}'`;
  }
}
