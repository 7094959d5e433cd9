import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { parseBenchRecord } from "../../bench/record/bench-record.ts";
import { clipstack } from "../test-programs.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-bench-models-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const short = [
  ...["--weights", "tiny", "--backend", "embed-http,onnx-grpc", "--batch-sizes", "2"],
  ...["--concurrency", "1", "--window", "0.3", "--duration", "2", "--port-offset", "24000"],
  ...["--rounds", "1", "--report", folder],
];

test.each([
  ["a text tower", ["--modality", "text"], "openclip-vit-b32", "text"],
  ["a model that is not the first", ["--model", "dinov2-small"], "dinov2-small", "image"],
] as const)(
  "measures %s of an environment with several models",
  { timeout: 120_000 },
  async (_name, args, spec, modality) => {
    const output = join(folder, `${spec}.json`);
    const { code, stdout, stderr } = await clipstack(
      ["bench", "search", ...args, ...short, "--output", output],
      { CDKTF_OUTDIR: join(folder, "out") },
    );
    expect({ code, stderr: stderr.match(/✘.*/)?.[0] }).toEqual({ code: 0, stderr: undefined });
    expect(stdout).toContain(`${modality}s/s`);
    expect(stdout).toContain(spec);

    const record = parseBenchRecord(readFileSync(output, "utf8"), output);
    expect(record.subject.model).toMatchObject({ name: "tiny", spec, modality });
    const suffix = modality === "text" ? "_text" : "";
    expect(record.loadPoints.map(({ id }) => id)).toEqual([
      `embed-http${suffix} b2 c1`,
      `onnx-grpc${suffix} b2 c1`,
    ]);
    expect(record.parity.every(({ passed, images }) => passed && images > 2)).toBe(true);
  },
);
