import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import table from "./resource-types.json" with { type: "json" };

// the docker provider: replacements.integ.test.ts
test.each(["kubernetes", "helm"] as const)(
  "the table of replacements is of the version of the provider %s in the constructs",
  (name) => {
    const file = `node_modules/@cdktf/provider-${name}/package.json`;
    const { version } = JSON.parse(readFileSync(file, "utf8")).cdktf.provider;
    expect(
      table.providers[`hashicorp/${name}`],
      `compare ForceNew in the sources of ${name} ${version} with resource-types.json`,
    ).toBe(version);
  },
);
