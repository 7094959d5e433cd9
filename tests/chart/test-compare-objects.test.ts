import { expect, test } from "vitest";
import { differences } from "./test-compare-objects.ts";

const service = (spec: object, name = "embed") => ({ kind: "Service", metadata: { name }, spec });

test("ignores the order of keys", () => {
  expect(
    differences(
      [service({ type: "NodePort", ports: [{ name: "http", port: 8002 }] })],
      [service({ ports: [{ port: 8002, name: "http" }], type: "NodePort" })],
    ),
  ).toEqual([]);
});

test("ignores the difference between missing and empty annotations", () => {
  expect(differences([service({ annotations: {} })], [service({})])).toEqual([]);
  expect(differences([service({ selector: {} })], [service({})])).toEqual([
    "Service embed: spec.selector: {} | none",
  ]);
});

test("finds different values, missing values and different types", () => {
  expect(
    differences(
      [service({ port: 8002, type: "NodePort", node: 1 })],
      [service({ port: 8003, node: "1" })],
    ),
  ).toEqual([
    'Service embed: spec.node: 1 | "1"',
    "Service embed: spec.port: 8002 | 8003",
    'Service embed: spec.type: "NodePort" | none',
  ]);
});

test("finds an additional list item, and a changed order", () => {
  expect(differences([service({ a: [1, 2] })], [service({ a: [2, 1, 3] })])).toEqual([
    "Service embed: spec.a.0: 1 | 2",
    "Service embed: spec.a.1: 2 | 1",
    "Service embed: spec.a.2: none | 3",
  ]);
});

test("finds an object that is only on one side", () => {
  expect(differences([service({})], [service({}, "other")])).toEqual([
    "Service embed: only left",
    "Service other: only right",
  ]);
});

test("omits intended differences only", () => {
  const left = service({ labels: { "helm.sh/chart": "a", other: 1 }, list: [{ a: 1 }, { a: 2 }] });
  const right = service({ labels: { other: 2 }, list: [{ a: 3 }, { a: 4 }] });
  expect(
    differences(
      [left],
      [right],
      ["Service: spec.labels.helm·sh/chart", "Service: spec.list.*.a", "Pod: spec.labels.other"],
    ),
  ).toEqual(["Service embed: spec.labels.other: 1 | 2"]);
});
