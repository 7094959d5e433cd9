import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { trainedModel } from "../../model-tools/fetch/test-trained-model.ts";

const { missing } = await trainedModel();

async function runDemo(...args: readonly string[]): Promise<string> {
  const child = spawn("npm", ["run", "--silent", "lab", "--", "dedupe", "--exit", ...args], {
    cwd: fileURLToPath(new URL("../../", import.meta.url)),
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (chunk) => {
    text += chunk;
  });
  const [code] = await once(child, "close");
  expect(code, text).toBe(0);
  expect(text).toContain("172 photos read, 0 unchanged, 0 gone, 0 cannot be read");
  expect(text).toMatch(/158 photos embedded .*, 0 cannot be embedded/);
  expect(text).toContain("perceptual hash alone:");
  expect(text).toMatch(/embeddings alone:\n\s+minimum cosine {2}precision {4}recall/);
  expect(text).toMatch(/\d+ groups with \d+ of 172 photos/);
  return text;
}

/** Precision and recall in percent, by the name of the row in the comparison. */
function comparison(text: string): ReadonlyMap<string, { precision: number; recall: number }> {
  const rows = text.matchAll(
    /^ {2}(\S.*?) +([\d.]+) (?:bits|cosine) +([\d.]+) % +([\d.]+) %(?: {2}<- best)?$/gm,
  );
  return new Map(
    [...rows].map(([, name, limit, precision, recall]) => [
      name === "near duplicates in the table" ? `${name}, ${limit}` : name!,
      { precision: Number(precision), recall: Number(recall) },
    ]),
  );
}

describe.skipIf(missing !== "")(`the demo with trained weights${missing}`, () => {
  test("compares the hash, fp32, fp16 and int8 on labelled photos", async () => {
    const text = await runDemo();
    expect(text).toContain("using efficientnet-lite0 with trained weights (ImageNet)");
    expect(text).not.toContain("random weights");
    const rows = comparison(text);
    expect([...rows.keys()].filter((name) => !name.includes("table"))).toEqual([
      "perceptual hash",
      "fp32 embeddings",
      "fp32 embeddings confirmed by the hash",
      "fp16 embeddings",
      "fp16 embeddings confirmed by the hash",
      "int8 embeddings",
      "int8 embeddings confirmed by the hash",
    ]);
    const table = (cosine: string) => rows.get(`near duplicates in the table, ${cosine}`)!;
    expect(table("0.95").precision).toBeGreaterThan(98);
    expect(table("0.5").recall).toBeGreaterThan(90);
    for (const precision of ["fp32", "fp16", "int8"]) {
      const confirmed = rows.get(`${precision} embeddings confirmed by the hash`)!;
      expect(confirmed.precision).toBeGreaterThan(97);
      expect(confirmed.recall).toBeGreaterThan(rows.get("perceptual hash")!.recall);
    }
  });
});

// the same steps: needed only where the weights cannot be fetched
describe.skipIf(missing === "")("the demo without trained weights", () => {
  test("runs every step and labels the random weights", async () => {
    const text = await runDemo("--model", "tiny");
    expect(text).toContain("the model has random weights");
    expect(comparison(text).has("fp32 embeddings")).toBe(true);
  });
});
