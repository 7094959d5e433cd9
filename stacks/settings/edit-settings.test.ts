import { expect, test } from "vitest";
import { withSetting } from "./edit-settings.ts";

const file = `# comment
stack: single-gpu
host: { gpu: t4, count: 1 } # one
embed:
  # about the port
  port: 8002   # loopback
  gpus: [0]

# about Triton
tritonOnnx:
  image: "server:1"
monitoring: {}
`;

test.each([
  [["tritonOnnx", "image"], '"server:1"', "server:2"],
  [["embed", "image"], "  gpus: [0]\n", "  gpus: [0]\n  image: server:2\n"],
  [["host", "image"], "count: 1 }", "count: 1, image: server:2 }"],
  [["monitoring", "images", "grafana"], "{}", "{ images: { grafana: server:2 } }"],
  [["tritonTrt", "image"], "{}\n", "{}\ntritonTrt: { image: server:2 }\n"],
])("sets %j and changes nothing else", (path, before, after) => {
  expect(withSetting(file, path, "server:2")).toBe(file.replace(before, after));
});

test("adds a line to a file without a line break at its end", () => {
  expect(withSetting("stack: kind\nlist:\n  - a: 1", ["embed", "image"], "server:2")).toBe(
    "stack: kind\nlist:\n  - a: 1\nembed: { image: server:2 }",
  );
});

test("fails below a value that is no map", () => {
  expect(() => withSetting("a: &x { b: 1 }\nc: *x", ["c", "image"], "server:2")).toThrow(
    "c must be a map of settings in the file",
  );
});
