import { expect, test } from "vitest";
import { licenceRows } from "./render-third-party.ts";

test("a production dependency is listed, one of development or this repository is not", () => {
  const packages = {
    client: {},
    "node_modules/a": { license: "MIT" },
    "node_modules/a/node_modules/@b/c": { license: "(MIT OR CC0-1.0)" },
    "node_modules/d": { license: "GPL-3.0", dev: true },
    "node_modules/client": { link: true },
  };
  expect([...licenceRows(packages)]).toEqual([
    ["(MIT OR CC0-1.0)", ["@b/c"]],
    ["MIT", ["a"]],
  ]);
});

test.each(["GPL-3.0", "MIT AND SSPL-1.0", undefined])("fails for the licence %s", (license) => {
  expect(() => licenceRows({ "node_modules/e": { license } })).toThrow(`got '${license ?? ""}'`);
});
