import { expect, test } from "vitest";
import { environmentNames } from "./settings.ts";
import { settingsDocs } from "./settings-docs.ts";

test("has a section for each environment", () => {
  for (const environment of environmentNames) {
    expect(settingsDocs()).toContain(`\n## ${environment}\n`);
  }
});

test("gives range, default and meaning of a setting", () => {
  expect(settingsDocs()).toContain(
    "| `host.count` | 1 to 16 | `4` | How many GPUs the host has. |",
  );
});

test("takes a default from the object that names it", () => {
  expect(settingsDocs()).toContain(
    "| `budget.maxUnavailable` | 0 to 1000 | `1` | How many pods may be away; fewer than the fewest pods, where these are several. |",
  );
});
