import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

test("the demo runs every step with a local server and prints precision and recall", async () => {
  const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
  const child = spawn(process.execPath, [program, "demo", "--model", "tiny", "--exit"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (chunk) => {
    text += chunk;
  });
  const [code] = await once(child, "close");
  expect(text).toContain("172 photos read, 0 unchanged, 0 gone, 0 cannot be read");
  expect(text).toMatch(/158 photos embedded .*, 0 cannot be embedded, 0 remain/);
  expect(text).toContain("perceptual hash alone:");
  expect(text).toMatch(/embeddings:\n\s+minimum cosine {2}precision {4}recall/);
  expect(text).toContain("the model has random weights");
  expect(text).toMatch(/\d+ groups with \d+ of 172 photos/);
  expect(code).toBe(0);
});
