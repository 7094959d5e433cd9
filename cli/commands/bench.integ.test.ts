import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BenchRecord, parseBenchRecord } from "../../bench/record/bench-record.ts";
import {
  type RealTriton,
  realTritonMissing,
  startRealTriton,
} from "../../client/triton/test-real-triton.ts";
import { fullTestRepository, type TestRepository } from "../../emulator/test-repository.ts";
import { clipstack } from "../test-programs.ts";

const paths = ["onnx-http", "onnx-grpc", "onnx-http_uint8", "onnx-grpc_jpeg", "onnx-http_json"];

describe.skipIf(realTritonMissing !== "")(
  `bench of a real Triton server, by its addresses${realTritonMissing && ` (skipped: ${realTritonMissing})`}`,
  () => {
    let repository: TestRepository;
    let triton: RealTriton;
    let folder: string;
    let record: BenchRecord;

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "clipstack-bench-integ-"));
      repository = await fullTestRepository();
      triton = await startRealTriton(repository.path);
      const output = join(folder, "results.json");
      const { code, stderr } = await clipstack([
        ...["bench", "--weights", "tiny", "--backend", paths.join(",")],
        ...["--url", `onnx-http=${triton.url}`, "--url", `onnx-grpc=${triton.grpcTarget}`],
        ...["--metrics-url", `onnx=http://127.0.0.1:${triton.ports[2]}/metrics`],
        ...["--batch-sizes", "1,2", "--concurrency", "2", "--window", "0.5", "--duration", "4"],
        ...["--rounds", "1", "--output", output, "--report", folder],
      ]);
      expect(stderr).not.toContain("✘");
      expect(code).toBe(0);
      record = parseBenchRecord(await readFile(output, "utf8"), output);
    });
    afterAll(async () => {
      await triton?.stop();
      await repository?.remove();
      if (folder !== undefined) await rm(folder, { recursive: true });
    });

    test("every payload gives the embeddings of the local model", () => {
      expect(record.parity.map(({ passed }) => passed)).toEqual(paths.map(() => true));
    });

    test("every endpoint is measured, with the times that Triton counted", () => {
      expect(record.loadPoints.map(({ id }) => id)).toEqual(
        paths.flatMap((path) => [`${path} b1 c2`, `${path} b2 c2`]),
      );
      for (const { id, samples, server } of record.loadPoints) {
        expect(samples, id).toBeGreaterThan(0);
        expect(server, id).toMatchObject({ source: "triton" });
        expect(server?.inferMs, id).toBeGreaterThan(0);
      }
      const jpeg = record.loadPoints.filter(({ payload }) => payload === "jpeg");
      for (const { id, server } of jpeg) expect(server?.decodeMs, id).toBeGreaterThan(0);
    });

    test("Triton itself is named in the record", () => {
      expect(record.subject.servers).toEqual([
        { service: "triton-onnx", name: "triton", version: expect.stringMatching(/^2\./) },
      ]);
    });
  },
);
