import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { plannedChange } from "../test-plans.ts";
import { ownRules } from "./own-rules.ts";

const folder = mkdtempSync(join(tmpdir(), "own-rules-"));
const change = plannedChange([
  {
    address: "aws_db_instance.a",
    after: { password: "planted-0000" },
    more: { after_sensitive: { password: true } },
  },
]);

async function errorOf(name: string, module: string): Promise<string> {
  const file = join(folder, `${name}.mjs`);
  writeFileSync(file, module);
  try {
    for (const rule of await ownRules(file)) rule.find(change);
  } catch (error) {
    return String(error).replaceAll(file, "m.mjs");
  }
  return "";
}

const rule = (find: string, id = "own-a") =>
  `export default [{ id: "${id}", severity: "note", fix: "-", find: ${find} }];`;

test.each([
  ["valid", rule("() => [{ message: 'wrong' }]"), ""],
  [
    "id",
    rule("() => []", "a"),
    "m.mjs: default.0.id must start with 'own-', in kebab case, got 'a'",
  ],
  ["empty", "export const rules = [];", "m.mjs: default is required"],
  [
    "async",
    rule("async () => { throw new Error(); }"),
    "m.mjs: own-a: find must not be asynchronous, got a Promise",
  ],
  ["none", rule("() => {}"), "m.mjs: own-a: find: result is required"],
  [
    "lines",
    rule("() => [{ message: 'a\\nb' }]"),
    "m.mjs: own-a: find: result.0.message must be one line of at most 400 characters, got 'a\\nb'",
  ],
  [
    "secret",
    rule(
      "({ resources: [it] }) => { throw new Error('password ' + it.after.password + ' is weak'); }",
    ),
    "m.mjs: own-a: password (not shown) is weak",
  ],
])("the error of a module is one line without secrets: %s", async (name, module, message) => {
  expect(await errorOf(name, module)).toBe(message && `UserError: ${message}`);
});
