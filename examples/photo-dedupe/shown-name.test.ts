import { expect, test } from "vitest";
import { shownJson, shownName } from "./shown-name.ts";

test("shows the characters of a name that a terminal acts on", () => {
  expect(shownName("a\nb\x1b[2J\x7f\u009b1m\u202egpj.jpg")).toBe(
    "a\\nb\\u001b[2J\\u007f\\u009b1m\\u202egpj.jpg",
  );
  expect(shownName("Käse 🐱.jpg")).toBe("Käse 🐱.jpg");
});

test("JSON has no such character in it, and means the same", () => {
  const names = ["a\nb\x1b[2J", "\x7f\u009b1m\u202egpj.jpg"];
  const text = shownJson(names);
  expect(text).toMatch(/^[ -~\n]+$/);
  expect(text.split("\n")).toHaveLength(4);
  expect(JSON.parse(text)).toEqual(names);
});
