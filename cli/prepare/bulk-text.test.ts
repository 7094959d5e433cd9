import { expect, test } from "vitest";
import { planText, progressText, verificationText } from "./bulk-text.ts";

const plan = { entries: 1, shards: 1, added: 1, changed: 0, removed: 0 };

test.each([
  [2_000, "1 file, 2.0 kB, in 1 shard: 1 new"],
  [0, "1 file, in 1 shard: 1 new"],
])("a plan of %d bytes", (bytes, text) => {
  expect(planText({ ...plan, bytes }, "job")).toContain(text);
});

test("a finding about a file name with a line break is one line", () => {
  const result = {
    shards: 1,
    rows: 1,
    failures: 0,
    sampled: 0,
    findings: ["a\n\x1b[31mb is gone"],
  };
  expect(verificationText(result).split("\n")[0]).toBe("a\\n\\u001b[31mb is gone");
});

test("progress of a tar file, planned as one, states no total", () => {
  const progress = { shards: 0, images: 41, errors: 0, bytes: 0 };
  expect(progressText(progress, { seconds: 1, remaining: 1 })).toMatch(
    /^41 images, [0-9.]+ images\/s$/,
  );
});
