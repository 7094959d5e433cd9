import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { parseEnvironment } from "../../stacks/settings/settings.ts";
import { withSettings, writeTunedFile } from "./tune-environment.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-tune-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const text = `# Our host.
# clipstack tune: an earlier reason
stack: single-gpu
accelerator: cpu

embed:
  server:
    maxBatchSize: 32 # of the model
`;

test("changes only the settings, with the reason in place of an earlier one", () => {
  const settings = { "embed.server.maxBatchSize": 8, "tritonOnnx.maxQueueDelayMicroseconds": 0 };
  expect(withSettings(text, settings, "p99 ≤ 200 ms: 1 → 2 images/s")).toBe(
    `${text
      .replace("an earlier reason", "p99 ≤ 200 ms: 1 → 2 images/s")
      .replace(
        "maxBatchSize: 32",
        "maxBatchSize: 8",
      )}tritonOnnx: { maxQueueDelayMicroseconds: 0 }\n`,
  );
});

test("a file that was changed or removed during the run is kept, and the settings are told", () => {
  const file = join(folder, "host.yaml");
  const tuned = { file, text, environment: parseEnvironment("host", file, text) };
  const write = () => writeTunedFile(tuned, { "embed.server.maxBatchSize": 8 }, "reason");
  const failure = `--write: ${file} was changed during the run, so it is kept; set embed.server.maxBatchSize: 8 yourself`;
  expect(write).toThrow(failure);
  writeFileSync(file, `${text}# edited\n`);
  expect(write).toThrow(failure);
  expect(readFileSync(file, "utf8")).toBe(`${text}# edited\n`);
  writeFileSync(file, text);
  write();
  expect(readFileSync(file, "utf8")).toBe(
    text.replace("an earlier reason", "reason").replace("maxBatchSize: 32", "maxBatchSize: 8"),
  );
});
