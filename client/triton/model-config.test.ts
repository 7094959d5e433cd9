import fc from "fast-check";
import { expect, test } from "vitest";
import { ModelConfigError, readModelConfig } from "./model-config.ts";

const read = (text: string) => readModelConfig(text, "config.pbtxt");

test("reads a small configuration as Triton's JSON", () => {
  const config = read(`
    name: "m"
    platform: "onnxruntime_onnx"
    max_batch_size: 8
    input [{ name: "x", data_type: TYPE_FP32, dims: [ 3, -1 ] }]
    output { name: "y" data_type: TYPE_STRING dims: 1 }
    dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 5000 }
    instance_group [{ count: 2 kind: KIND_GPU gpus: [ 0, 1 ] }]
  `);
  expect(config).toEqual({
    name: "m",
    platform: "onnxruntime_onnx",
    backend: "onnxruntime",
    runtime: "",
    version_policy: { latest: { num_versions: 1 } },
    max_batch_size: 8,
    input: [
      {
        name: "x",
        data_type: "TYPE_FP32",
        format: "FORMAT_NONE",
        dims: [3, -1],
        is_shape_tensor: false,
        allow_ragged_batch: false,
        optional: false,
        is_non_linear_format_io: false,
      },
    ],
    output: [
      {
        name: "y",
        data_type: "TYPE_STRING",
        dims: [1],
        label_filename: "",
        is_shape_tensor: false,
        is_non_linear_format_io: false,
      },
    ],
    batch_input: [],
    batch_output: [],
    optimization: {
      priority: "PRIORITY_DEFAULT",
      input_pinned_memory: { enable: true },
      output_pinned_memory: { enable: true },
      gather_kernel_buffer_threshold: 0,
      eager_batching: false,
    },
    dynamic_batching: {
      preferred_batch_size: [4, 8],
      max_queue_delay_microseconds: 5000,
      preserve_ordering: false,
      priority_levels: 0,
      default_priority_level: 0,
      priority_queue_policy: {},
    },
    instance_group: [
      {
        name: "",
        kind: "KIND_GPU",
        count: 2,
        gpus: [0, 1],
        secondary_devices: [],
        profile: [],
        passive: false,
        host_policy: "",
      },
    ],
    default_model_filename: "model.onnx",
    cc_model_filenames: {},
    metric_tags: {},
    parameters: {},
    model_warmup: [],
  });
});

test("reads maps as objects, with repeated or listed entries", () => {
  const config = read(`
    parameters { key: "a" value { string_value: "1" } }
    parameters: [{ key: "b" value: { string_value: "2" } }, { key: "__proto__" }]
  `);
  expect(Object.entries(config.parameters ?? {})).toEqual([
    ["a", { string_value: "1" }],
    ["b", { string_value: "2" }],
    ["__proto__", { string_value: "" }],
  ]);
});

test("reads integers as numbers", () => {
  const config = read("max_batch_size: 0x20 input { dims: [ 010, -1 ] }");
  expect(config.max_batch_size).toBe(32);
  expect(config.input[0]?.dims).toEqual([8, -1]);
});

test("accepts the number of an enum value", () => {
  expect(read("instance_group { kind: 2 }").instance_group[0]?.kind).toBe("KIND_CPU");
});

test.each(
  Object.entries({
    "2: inference.ModelConfig: unknown field 'max_batchsize': max_batchsize: 8":
      'name: "m"\nmax_batchsize: 8',
    "2: inference.ModelInput: unknown field 'dim': dim: 3": "input {\n  dim: 3\n}",
    "1: inference.ModelConfig: unknown field 'constructor': constructor: 1": "constructor: 1",
    "2: integer value expected: max_batch_size: many":
      'name: "m"\n  max_batch_size: many\nbackend: "python"',
    "1: integer value out of range: max_batch_size: 2147483648": "max_batch_size: 2147483648",
    "1: expected string: name: m": "name: m",
    "2: inference.ModelInstanceGroup.kind: enum value expected: kind: KIND_TPU }":
      "instance_group {\n kind: KIND_TPU }",
    "1: expected message value: dynamic_batching: 1": "dynamic_batching: 1",
    "2: inference.ModelConfig.max_batch_size: multiple values: max_batch_size: 2":
      "max_batch_size: 1\nmax_batch_size: 2",
    "2: scheduling_choice: multiple values: sequence_batching { }":
      "dynamic_batching { }\nsequence_batching { }",
    '2: unterminated string: name: "m': 'backend: "python"\nname: "m',
  }),
)("names the line of %s", (message, text) => {
  expect(() => read(text)).toThrow(new ModelConfigError(`config.pbtxt:${message}`));
});

test("reads any text or rejects it by line", () => {
  const text = fc.string({ unit: fc.constantFrom("name", ...'1-.:,;{}<>[]"\\x# \n') });
  fc.assert(
    fc.property(text, (it) => {
      try {
        read(it);
      } catch (error) {
        expect(error).toBeInstanceOf(ModelConfigError);
        expect((error as Error).message).toMatch(/^config\.pbtxt:[1-9]/);
      }
    }),
  );
});
