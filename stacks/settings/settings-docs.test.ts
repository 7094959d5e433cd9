import { expect, test } from "vitest";
import { stackNames } from "./settings.ts";
import { settingsDocs } from "./settings-docs.ts";

test("has a section for each stack", () => {
  for (const stack of stackNames) {
    expect(settingsDocs()).toContain(`\n## ${stack}\n`);
  }
});

test("gives range, default and meaning of a setting", () => {
  expect(settingsDocs()).toContain(
    "| `host.count` | 1 to 16 | `4` | Number of GPUs in the host. |",
  );
});

test("uses the default of the surrounding object", () => {
  expect(settingsDocs()).toContain(
    "| `budget.maxUnavailable` | 0 to 1000 | `1` | Maximum number of unavailable pods; less than minReplicas unless that is 1. |",
  );
});
