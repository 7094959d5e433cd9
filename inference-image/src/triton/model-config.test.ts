import { describe, expect, test } from "vitest";
import { readModelConfig } from "./model-config.ts";

const read = (text: string) => readModelConfig(text, "config.pbtxt");

test("a small configuration reads as the JSON that Triton gives", () => {
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
  expect(Object.keys(config).slice(0, 6)).toEqual([
    "name",
    "platform",
    "backend",
    "runtime",
    "version_policy",
    "max_batch_size",
  ]);
});

test("maps are objects, whether their entries are repeated or listed", () => {
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

test("integers are numbers where that is exact, else their digits", () => {
  const config = read(`
    max_batch_size: 0x20
    input { dims: [ 010, -9223372036854775808 ] }
    dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }
  `);
  expect(config.max_batch_size).toBe(32);
  expect(config.input[0]?.dims).toEqual([8, "-9223372036854775808"]);
  expect(config.dynamic_batching?.max_queue_delay_microseconds).toBe("18446744073709551615");
});

test("an enum may be given by its number", () => {
  expect(read("instance_group { kind: 2 }").instance_group[0]?.kind).toBe("KIND_CPU");
});

describe("fails at", () => {
  test.each([
    [
      "an unknown field",
      'name: "m"\nmax_batchsize: 8',
      '2:1: Message type "inference.ModelConfig" has no field named "max_batchsize"',
    ],
    [
      "an unknown field of a nested message",
      "input { dim: 3 }",
      '1:9: Message type "inference.ModelInput" has no field named "dim"',
    ],
    [
      "a name that every object has",
      "constructor: 1",
      '1:1: Message type "inference.ModelConfig" has no field named "constructor"',
    ],
    [
      "a word for a number",
      "max_batch_size: many",
      "1:17: max_batch_size must be an integer, got 'many'",
    ],
    [
      "a fraction for an integer",
      "input { dims: [1.5] }",
      "1:16: input.dims must be an integer, got '1.5'",
    ],
    [
      "a number that does not fit",
      "max_batch_size: 2147483648",
      "1:17: max_batch_size must be -2147483648 to 2147483647, got '2147483648'",
    ],
    [
      "a negative unsigned number",
      "version_policy { latest { num_versions: -1 } }",
      "1:41: version_policy.latest.num_versions must be 0 to 4294967295, got '-1'",
    ],
    ["a string without quotes", "name: m", "1:7: name must be a string in quotes, got 'm'"],
    [
      "an unknown enum value",
      "instance_group { kind: KIND_TPU }",
      "1:24: instance_group.kind must be one of KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL, got 'KIND_TPU'",
    ],
    [
      "an enum value in quotes",
      'input { data_type: "TYPE_FP32" }',
      "1:20: input.data_type must be one of TYPE_INVALID, TYPE_BOOL,",
    ],
    [
      "a boolean that is neither",
      "dynamic_batching { preserve_ordering: yes }",
      "1:39: dynamic_batching.preserve_ordering must be true or false, got 'yes'",
    ],
    [
      "a scalar for a message",
      "dynamic_batching: 1",
      "1:19: dynamic_batching must be a message, { … }, got '1'",
    ],
    [
      "a list for one value",
      "max_batch_size: [1, 2]",
      "1:17: max_batch_size must be one value, got a list",
    ],
    [
      "a field given twice",
      "max_batch_size: 1\nmax_batch_size: 2",
      "2:1: max_batch_size must be given once, got it twice",
    ],
    [
      "two kinds of scheduling",
      "dynamic_batching { }\nsequence_batching { }",
      "2:1: sequence_batching and dynamic_batching must not be given together",
    ],
    [
      "a map entry with another field",
      'parameters { kee: "a" }',
      "1:14: an entry of parameters has key and value, got 'kee'",
    ],
    [
      "a map entry with two keys",
      'metric_tags { key: "a" key: "b" }',
      "1:24: metric_tags.key must be given once, got it twice",
    ],
  ])("%s", (_name, text, message) => {
    expect(() => read(text)).toThrow(`config.pbtxt:${message}`);
  });
});
