import { expect, test } from "vitest";
import { chartDocuments } from "../facts/chart-documents.ts";
import { hidden } from "../input/secrets.ts";
import { plannedChange } from "../test-plans.ts";
import { imageNames } from "./diff-images.ts";
import { diffPbtxt, fieldsOf } from "./diff-pbtxt.ts";
import { diffResource } from "./diff-values.ts";

/** Differences as `<path>: <before> → <after>`. */
function lines(type: string, before: object, after: object, more: object = {}): readonly string[] {
  const change = plannedChange([{ address: `${type}.a`, before, after, more: more as never }]);
  return diffResource(change.resources[0]!, imageNames(change.resources)).flatMap((block) =>
    block.lines.map((line) => {
      const where = block.title === "" ? line.path : `${block.title}: ${line.path}`;
      return `${where}: ${line.before ?? ""} → ${line.after ?? ""}`;
    }),
  );
}

const config = (delay: number, more = "") => `name: "m"
platform: "onnxruntime_onnx"
input [ { name: "image" dims: [3, 224, 224] } ]
dynamic_batching { preferred_batch_size: [8, 16] max_queue_delay_microseconds: ${delay} }
instance_group [ { kind: KIND_GPU count: 1 gpus: [0] } ]
${more}`;

test("compares environment variables by name, regardless of order", () => {
  expect(
    lines(
      "docker_container",
      { env: ["PORT=1", "BACKEND=onnxruntime"] },
      { env: ["BACKEND=triton", "PORT=1"] },
    ),
  ).toEqual(["env BACKEND: onnxruntime → triton"]);
});

test("compares a pod's variables by name, with their source", () => {
  const pod = (env: readonly object[]) => ({ spec: [{ container: [{ name: "c", env }] }] });
  const key = { name: "API_KEY", value_from: [{ secret_key_ref: [{ name: "keys", key: "api" }] }] };
  expect(
    lines(
      "kubernetes_pod_v1",
      pod([{ name: "PORT", value: "1" }]),
      pod([{ name: "PORT", value: "2" }, key]),
    ),
  ).toEqual([`spec.container[c].env API_KEY:  → ${hidden}`, "spec.container[c].env PORT: 1 → 2"]);
});

test("compares ports, labels and volumes by their identifying fields", () => {
  const at = (external: number, label: string, volume: string) => ({
    ports: [{ internal: 8000, external, protocol: "tcp" }],
    labels: [{ label: "a", value: label }],
    volumes: [{ container_path: "/c", volume_name: volume }],
  });
  expect(lines("docker_container", at(1, "x", "v"), at(2, "y", "w"))).toEqual([
    "labels[a]: x → y",
    "ports[8000/tcp].external: 1 → 2",
    "volumes[/c].volume_name: v → w",
  ]);
});

test("compares options of a command by name", () => {
  expect(
    lines(
      "docker_container",
      { command: ["t", "--exit=30", "--old"] },
      { command: ["t", "--exit=60", "--new"] },
    ),
  ).toEqual(["command --exit: 30 → 60", "command --old: set → ", "command --new:  → set"]);
});

test("compares all values of an option that a command repeats", () => {
  const container = (...models: readonly string[]) => ({
    command: ["tritonserver", ...models.map((model) => `--load-model=${model}`)],
  });
  const diff = (before: Record<string, unknown>, after: Record<string, unknown>) =>
    lines("docker_container", before, after);
  expect(diff(container("vit"), container("vit", "vit_text", "dino"))).toEqual([
    "command --load-model: vit → vit, vit_text, dino",
  ]);
  expect(diff(container("vit", "dino"), container("vit_text", "dino"))).toEqual([
    "command --load-model: vit, dino → vit_text, dino",
  ]);
});

test("hides words of a command that may be secrets", () => {
  const test = (path: string) => ["CMD", "curl", "-fsS", `http://127.0.0.1:8000${path}`, "word"];
  expect(
    lines(
      "docker_container",
      { command: ["serve", "--a=/x", "--b=word"], healthcheck: [{ test: test("/a") }] },
      { command: ["serve", "--a=/y", "--b=other", "more"], healthcheck: [{ test: test("/b") }] },
    ),
  ).toEqual([
    "command --a: /x → /y",
    `command --b: ${hidden} → ${hidden}`,
    `command[3]:  → ${hidden}`,
    "healthcheck.test, in part: [http://127.0.0.1:8000/a] → [http://127.0.0.1:8000/b]",
  ]);
});

test("prints only model configurations of a ConfigMap", () => {
  const data = (delay: number, text: string) => ({ data: { "config.pbtxt": config(delay), text } });
  expect(lines("kubernetes_config_map_v1", data(1, "word"), data(2, "words"))).toEqual([
    "data.text: a text of 4 characters → a text of 5 characters",
    "config.pbtxt of m: dynamic_batching.max_queue_delay_microseconds: 1 → 2",
  ]);
});

test("compares a model configuration by field", () => {
  const upload = (content: string) => ({ upload: [{ file: "/c.pbtxt", content }] });
  expect(
    lines("docker_container", upload(config(5000)), upload(config(2000, "max_batch_size: 16"))),
  ).toEqual([
    "config.pbtxt of m: dynamic_batching.max_queue_delay_microseconds: 5000 → 2000",
    "config.pbtxt of m: max_batch_size:  → 16",
  ]);
});

test("compares chart values by path, and model configurations in them by field", () => {
  const values = (replicas: number, delay: number) => ({
    values: [
      JSON.stringify({ triton: { replicas, modelConfig: { texts: { m: config(delay) } } } }),
    ],
  });
  expect(lines("helm_release", values(1, 5000), values(2, 4000))).toEqual([
    "values triton.replicas: 1 → 2",
    "config.pbtxt of m: dynamic_batching.max_queue_delay_microseconds: 5000 → 4000",
  ]);
});

test("prints the models of chart values", () => {
  const values = (...models: readonly string[]) => ({
    values: [JSON.stringify({ models, triton: { modelConfig: { texts: { m: config(5000) } } } })],
  });
  expect(
    lines("helm_release", values("openclip-vit-b32:image"), values("dinov2-small", "own:text")),
  ).toEqual([
    "values models[0]: openclip-vit-b32:image → dinov2-small",
    "values models[1]:  → own:text",
  ]);
});

test("gives later documents of chart values precedence", () => {
  const values = (...texts: readonly string[]) => ({ values: texts });
  expect(
    lines("helm_release", values("a: { n: 1 }"), values("a: { n: 1 }", "a: { n: 2 }")),
  ).toEqual(["values a.n: 1 → 2"]);
});

test("ignores different notations of equal values", () => {
  const before = { memory: 0, dns: null, volumes: [{ container_path: "/c", read_only: false }] };
  const after = { memory: null, dns: [], volumes: [{ container_path: "/c", read_only: null }] };
  expect(lines("docker_container", before, after)).toEqual([]);
});

test("prints added and removed items of a long list", () => {
  expect(
    lines("terraform_data", { input: ["a", "b", "c", "d"] }, { input: ["a", "b", "c", "e"] }),
  ).toEqual(["input, in part: [d] → [e]"]);
});

test("prints an unknown value that forces a replacement", () => {
  const more = {
    actions: ["delete", "create"],
    replace_paths: [["hostname"]],
    after_unknown: { hostname: true, domainname: true },
  };
  expect(lines("docker_container", { hostname: "a", domainname: "b" }, {}, more)).toEqual([]);
  expect(
    lines(
      "somebody_elses",
      { region: "a", other: "b" },
      {},
      { ...more, replace_paths: [["region"]], after_unknown: { region: true, other: true } },
    ),
  ).toEqual(["region: a → (known after apply)"]);
});

test("names fields of a configuration, and repeated ones by key", () => {
  const text = `parameters { key: "a" value { string_value: "1" } }
optimization { execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt" parameters { key: "precision_mode" value: "FP16" } } ] } }
instance_group [ { count: 1 }, { count: 2 } ]
output { name: "x" dims: 1 dims: 2 } dynamic_batching { }`;
  expect([...fieldsOf(text)!]).toEqual([
    ["output[x].name", '"x"'],
    ["output[x].dims", "[1, 2]"],
    ["optimization.execution_accelerators.gpu_execution_accelerator[tensorrt].name", '"tensorrt"'],
    [
      "optimization.execution_accelerators.gpu_execution_accelerator[tensorrt].parameters[precision_mode]",
      '"FP16"',
    ],
    ["dynamic_batching", "{ }"],
    ["instance_group[0].count", "1"],
    ["instance_group[1].count", "2"],
    ["parameters[a].string_value", '"1"'],
  ]);
});

test("shortens TensorRT parameters, and skips invalid configurations", () => {
  const trt = (mode: string) =>
    `optimization { execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt" parameters { key: "precision_mode" value: "${mode}" } } ] } }`;
  expect(diffPbtxt(trt("FP16"), trt("FP32"))?.lines).toEqual([
    { path: "tensorrt precision_mode", before: '"FP16"', after: '"FP32"' },
  ]);
  expect(diffPbtxt("input: {", "max_batch_size: 1")).toBeUndefined();
});

test.each<readonly [string, (depth: number) => string]>([
  ["lists in lists", (depth) => `${"[".repeat(depth)}${"]".repeat(depth)}`],
  ["maps in maps", (depth) => `a: ${"{a: ".repeat(depth)}1${"}".repeat(depth)}`],
  ["dashes", (depth) => `${"- ".repeat(depth)}1`],
])("ignores release values nested too deeply in %s", (_, text) => {
  expect(chartDocuments([`a: 1`, text(20_000)])).toBeUndefined();
});

test("values of a release are read as Helm reads them: one document each, the later over the earlier", () => {
  expect(chartDocuments(["a: {b: &x [1], c: *x}\nd: 1\n", "", "# none\n", "d: 2\n"])).toEqual({
    a: { b: [1], c: [1] },
    d: 2,
  });
  expect(chartDocuments(["a: 1\n---\nb: 2\n"])).toBeUndefined();
  expect(chartDocuments(["a: [1"])).toBeUndefined();
});

test.each<readonly [string, string, object]>([
  [
    "options of a volume",
    "docker_volume",
    { driver_opts: { o: "addr=h,username=u,pass=planted" } },
  ],
  ["options of a log", "docker_container", { log_opts: { "splunk-x": "planted" } }],
  ["an environment that is a map", "docker_service", { task: [{ env: { A: "planted" } }] }],
  [
    "an annotation that is a file",
    "kubernetes_ingress_v1",
    { metadata: [{ annotations: { snippet: "auth planted;" } }] },
  ],
  [
    "a header of a probe",
    "kubernetes_pod_v1",
    { spec: [{ http_get: [{ http_header: [{ name: "X", value: "planted" }] }] }] },
  ],
  ["a program for a new machine", "aws_instance", { user_data: "planted" }],
  ["a file", "local_file", { content: "planted" }],
  ["what triggers a program", "null_resource", { triggers: { a: "planted" } }],
  ["a field of a manifest", "kubernetes_manifest", { manifest: { spec: { login: "planted" } } }],
  ["a list of anybody", "somebody_elses", { words: ["planted"] }],
])("hides %s", (_, type, after) => {
  expect(lines(type, {}, after).join("\n")).not.toContain("planted");
  expect(lines(type, {}, after).join("\n")).toContain(hidden);
});

test("prints numbers, booleans, kinds and locations of unknown types", () => {
  const after = { instance_type: "t3.large", region: "eu-1", size: "3", on: true, names: ["a"] };
  expect(lines("aws_instance", {}, after)).toEqual([
    "instance_type:  → t3.large",
    `names:  → [${hidden}]`,
    "on:  → true",
    "region:  → eu-1",
    "size:  → 3",
  ]);
});
