import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { z } from "zod";
import { gpuNames } from "../../contract/gpus.ts";
import { shippedEnvironments, shippedStacks } from "./environment-files.ts";
import {
  parseEnvironment,
  parseSettings,
  type StackName,
  stackNames,
  stackSchemas,
} from "./settings.ts";
import { SettingsError } from "./settings-error.ts";

/** Error lines for `yaml`, without the file name. */
function mistakes(stack: StackName, yaml: string): readonly string[] {
  try {
    parseSettings(stack, "environments/x.yaml", yaml);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return error.lines;
  }
  return [];
}

/** Error lines of schema violations. */
function schemaMistakes(stack: StackName, yaml: string): readonly string[] {
  const [head, ...lines] = mistakes(stack, yaml);
  expect(head).toBe("environments/x.yaml:");
  return lines.map((line) => line.replace(/^ {2}/, ""));
}

test.each(stackNames)("%s requires no settings", (environment) => {
  expect(mistakes(environment, "")).toEqual([]);
});

const shippedFile = (name: string) =>
  readFileSync(new URL(`../../environments/${name}.yaml`, import.meta.url), "utf8");

test.each(shippedEnvironments)("the file of %s contains only defaults", (name) => {
  const { stack, settings } = parseEnvironment(name, name, shippedFile(name));
  expect(stack).toBe(shippedStacks[name]);
  expect(settings).toEqual(parseSettings(stack, name, ""));
});

test.each(shippedEnvironments)("the file of %s names its JSON Schema", (name) => {
  expect(shippedFile(name).split("\n")[0]).toBe(
    `# yaml-language-server: $schema=../stacks/schemas/${shippedStacks[name]}.schema.json`,
  );
});

test("reports every error at once: path, rule and value", () => {
  const yaml = "host: { gpu: a10g, count: 0 }\nembed: { port: 70000, expose: everybody }";
  expect(mistakes("single-gpu", yaml)).toEqual([
    "environments/x.yaml:",
    `  host.gpu must be one of ${gpuNames.join(", ")}, got 'a10g' (did you mean 'a10'?)`,
    "  host.count must be 1 to 16, got 0",
    "  embed.port must be 1 to 65535, got 70000",
    "  embed.expose must be one of loopback, all-interfaces, got 'everybody'",
  ]);
});

const declared = "name: RTX 5000 Ada, memory: 32760, architecture: 9.0, price: 0.65";

test("accepts the facts of a GPU that the catalogue lacks", () => {
  const { host } = parseSettings("single-gpu", "x", `host: { gpu: { ${declared} } }`);
  expect(host.gpu).toMatchObject({ architecture: "9.0", class: "workstation" });
});

test("names every mistake in the facts of a GPU", () => {
  const wrong = (gpu: string) => schemaMistakes("single-gpu", `host: { gpu: ${gpu} }`);
  expect(wrong("{ name: l4, memory: 1.5, architecture: 8.8, price: -1 }")).toEqual([
    "host.gpu.name must not be a name of the GPU catalogue: set gpu to the name alone, got 'l4'",
    "host.gpu.memory must be a whole number, 2048 to 4194304, got 1.5",
    "host.gpu.architecture must be a CUDA compute capability: 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0, got 8.8",
    "host.gpu.price must be 0 or more, got -1",
  ]);
  expect(wrong(`{ ${declared}, memroy: 1 }`)).toEqual([
    "unknown key 'host.gpu.memroy' (did you mean 'host.gpu.memory'?)",
  ]);
  expect(wrong("{ name: RTX 5000 Ada, memory: 32760, architecture: 8.9 }")).toEqual([
    "host.gpu.price is required",
  ]);
  expect(wrong("8")).toEqual([`host.gpu must be one of ${gpuNames.join(", ")}, got 8`]);
  expect(wrong("null")).toEqual([`host.gpu must be one of ${gpuNames.join(", ")}, got null`]);
});

test("fails on an unknown key and suggests the nearest one", () => {
  expect(schemaMistakes("single-gpu", "hots: {}\nhost: { gpuu: t4 }")).toEqual([
    "unknown key 'host.gpuu' (did you mean 'host.gpu'?)",
    "unknown key 'hots' (did you mean 'host'?)",
  ]);
});

test("fails on an unknown key without a near match and lists the known keys", () => {
  expect(schemaMistakes("kind", "budget: { evictions: 1 }")).toContain(
    "unknown key 'budget.evictions' (known: maxUnavailable, minAvailable)",
  );
});

test.each([
  ["kind", "budget: { minAvailable: 0 }", "budget"],
  ["kubernetes", "embed: { budget: { minAvailable: 0 } }", "embed.budget"],
  ["kubernetes", "triton: { budget: { minAvailable: 0 } }", "triton.budget"],
] as const)("fails on a PDB of %s that keeps no pod: %s", (environment, yaml, budget) => {
  expect(schemaMistakes(environment, yaml)).toEqual([
    `${budget}.minAvailable must be 1 to 1000, got 0`,
  ]);
});

test.each(
  Object.entries({
    "host: { count: four }": "host.count must be a whole number, 1 to 16, got 'four'",
    "host: { count: 1.5 }": "host.count must be a whole number, 1 to 16, got 1.5",
    "host: [1]": "host must be a map of settings, got [1]",
    "host:": "host must be a map of settings, got null",
    "tritonTrt: { enabled: perhaps }": "tritonTrt.enabled must be true or false, got 'perhaps'",
    "tritonTrt: { gpus: 0 }": "tritonTrt.gpus must be a list, got 0",
    "tracing: { endpoint: 'http://c:4318', ratio: 2 }": "tracing.ratio must be at most 1, got 2",
    "tritonTrt: { gpus: [] }": "tritonTrt.gpus must list at least one GPU, got []",
    "embed: { gpus: [0, 1] }":
      "embed.gpus must list one GPU: ONNX Runtime in the embed server runs on one, got [0,1]",
    "tritonTrt: { gpus: [0, -1] }": "tritonTrt.gpus.1 must be 0 to 63, got -1",
    "host: { docker: tcp://gpu-1:2375 }":
      "host.docker must be 'ssh://[user@]host[:port]' or 'unix:///path', got 'tcp://gpu-1:2375'",
    "host: { docker: 'ssh://me@gpu-1:99999' }":
      "host.docker must have a valid host and a port of at most 65535, got 'ssh://me@gpu-1:99999'",
    "host: { docker: 'ssh://me@[1:2]:22' }":
      "host.docker must have a valid host and a port of at most 65535, got 'ssh://me@[1:2]:22'",
    "constructor: 1":
      "unknown key 'constructor' (known: accelerator, host, state, review, models, modelRepository, weights, downloads, allowRandomWeights, network, tracing, embed, tritonOnnx, tritonTrt, baseline, monitoring)",
    "host: { toString: 1 }": expect.stringMatching(
      /^unknown key 'host.toString' \(known: docker, /,
    ),
    "network: Clip Stack":
      "network must be lower-case letters, digits and '-', at most 40, got 'Clip Stack'",
    "modelRepository: ~/models":
      "modelRepository must be a path without '~' or spaces, got '~/models'",
    "embed: { keys: /etc/clipstack/../keys.json }":
      "embed.keys must be the absolute path of a file on the host, without '..' or spaces, got '/etc/clipstack/../keys.json'",
    "embed: { keys: /etc/clipstack/ }":
      "embed.keys must be the absolute path of a file on the host, without '..' or spaces, got '/etc/clipstack/'",
    "state: { backend: local, path: /srv/states/a.tfstate }":
      "state.path must be a path relative to the project, without '..' or spaces, got '/srv/states/a.tfstate'",
    "state: { backend: http, address: 'https://s.example/a', lockAddress: 'https://s.example/l' }":
      'state must have both lockAddress and unlockAddress, or neither, got {"backend":"http","address":"https://s.example/a","lockAddress":"https://s.example/l"}',
  }),
)("fails on `%s`", (yaml, message) => {
  expect(schemaMistakes("single-gpu", yaml)).toEqual([message]);
});

test.each(stackNames)("accepts review waivers and a latency goal for %s", (environment) => {
  const yaml =
    "review: { p99GoalMilliseconds: 100, waivers: [{ rule: image-digest, reason: our mirror moves no tag, expires: 2027-01-31 }] }";
  expect(parseSettings(environment, "x", yaml).review).toEqual({
    p99GoalMilliseconds: 100,
    waivers: [{ rule: "image-digest", reason: "our mirror moves no tag", expires: "2027-01-31" }],
  });
});

test.each(
  Object.entries({
    "rule: image-digset":
      "rule must be the id of a rule (docs/rules/README.md), got 'image-digset' (did you mean 'image-digest'?)",
    "rule: waiver-expired":
      "rule must be the id of a rule (docs/rules/README.md), got 'waiver-expired'",
    "reason: so": "reason must be a reason: one line of 10 to 300 characters, got 'so'",
    "expires: 2027-02-30": "expires must be a day, like '2027-01-31', got '2027-02-30'",
    "expires: never": "expires must be a day, like '2027-01-31', got 'never'",
  }),
)("fails on a waiver with `%s`", (wrong, message) => {
  const good = { rule: "image-digest", reason: "our mirror moves no tag", expires: "2027-01-31" };
  const [key = "", value] = wrong.split(": ");
  const yaml = JSON.stringify({ review: { waivers: [{ ...good, [key]: value }] } });
  expect(schemaMistakes("single-gpu", yaml)).toEqual([`review.waivers.0.${message}`]);
});

test("fails when a list item lacks a setting", () => {
  expect(schemaMistakes("kind", "cluster: { portMappings: [{ nodePort: 30092 }] }")).toEqual([
    "cluster.portMappings.0.hostPort is required",
  ]);
});

test("fails on a YAML syntax error with line and column", () => {
  const [line, ...more] = mistakes("single-gpu", "host:\n  gpu: t4\n gpu: l4\n");
  expect(more).toEqual([]);
  expect(line).toMatch(/^environments\/x\.yaml:3:1: /);
});

test("fails on a repeated key", () => {
  expect(mistakes("single-gpu", "accelerator: gpu\naccelerator: cpu")).toEqual([
    "environments/x.yaml:2:1: Map keys must be unique",
  ]);
});

test.each([
  [
    "an alias without an anchor",
    "embed: *foo",
    ":1:8: alias '*foo' must come after its anchor '&foo'",
  ],
  [
    "an alias bomb",
    `a: &a [${"1,".repeat(20)}]\nb: &b [${"*a,".repeat(20)}]\nc: [${"*b,".repeat(20)}]`,
    ": has aliases that grow without bound",
  ],
  [
    "an alias inside its own anchor",
    "host: &a { gpu: *a }",
    ": has aliases that grow without bound",
  ],
  [
    "several documents",
    "accelerator: gpu\n---\naccelerator: cpu\n",
    ":2:1: must be one YAML document, got another one after '---'",
  ],
  ["an unknown tag", "accelerator: !machine gpu", ":1:14: Unresolved tag: !machine"],
  ["a NUL", "network: a\0b", ": must be UTF-8 text, without control characters"],
])("fails in one line on %s", (_, yaml, line) => {
  expect(mistakes("single-gpu", yaml)).toEqual([`environments/x.yaml${line}`]);
});

test("fails in one line on a multi-line value", () => {
  expect(schemaMistakes("single-gpu", "accelerator: |\n  gpu\n  cpu\n")).toEqual([
    "accelerator must be one of gpu, cpu, got 'gpu\\ncpu\\n'",
  ]);
});

test.each([
  ["ssh://gpu:hunter2@gpu-1", "'ssh://gpu:…@gpu-1'"],
  ["ssh://gpu:hunter@hunter2/x@gpu-1:22", "'ssh://gpu:…@gpu-1:22'"],
  ["ssh://:hunter2@gpu-1", "'ssh://:…@gpu-1'"],
])("rejects a password in a URL without printing it: %s", (docker, shown) => {
  expect(schemaMistakes("single-gpu", `host: { docker: '${docker}' }`)).toEqual([
    `host.docker must be 'ssh://[user@]host[:port]' or 'unix:///path', got ${shown}`,
  ]);
});

test("rejects a toleration that Kubernetes would reject", () => {
  const toleration = "{ key: gpu, operator: Exists, value: 'yes' }";
  expect(schemaMistakes("kubernetes", `nodePool: { tolerations: [${toleration}] }`)).toEqual([
    "nodePool.tolerations.0.value must be absent with the operator Exists, got 'yes'",
  ]);
});

test("rejects weights at a signed URL without printing its secret", () => {
  const model = `{ weights: init, url: "https://a.example/m.onnx?signature=hunter2", sha256: ${"a".repeat(64)} }`;
  expect(schemaMistakes("kubernetes", `model: ${model}`)).toEqual([
    "model.url must be a URL without a user, a password or a query, got 'https://a.example/m.onnx?…'",
  ]);
});

test.each(stackNames)("every setting of %s has a description", (environment) => {
  interface Schema {
    readonly description?: string;
    readonly properties?: Readonly<Record<string, Schema>>;
    readonly items?: Schema;
  }
  const silent = (path: string, schema: Schema): readonly string[] => [
    ...Object.entries(schema.properties ?? {}).flatMap(([key, inner]) =>
      silent(`${path}.${key}`, inner),
    ),
    // items of the chart's lists are fields of Kubernetes
    ...(schema.items?.properties === undefined || path.startsWith(".job.")
      ? []
      : silent(`${path}[]`, schema.items)),
    ...(schema.properties === undefined && schema.description === undefined ? [path] : []),
  ];
  const schema = z.toJSONSchema(stackSchemas[environment], { io: "input" });
  expect(silent("", schema as Schema)).toEqual([]);
});
