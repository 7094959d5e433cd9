import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { imageBytes, imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { fullTestRepository, type TestRepository } from "../../emulator/test-repository.ts";
import { startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { normalised } from "../../inference/preprocess/image-tensor.ts";
import { pngOf } from "./test-png.ts";
import { pythonWithTritonClient } from "./test-python.ts";
import { realTritonMissing, startRealTriton } from "./test-real-triton.ts";

const fp32Name = tritonModelName(defaultModel, "fp32");
const u8ModelName = tritonModelName(defaultModel, "u8");
const pixelBytes = imageBytes(imageTowerOf(defaultModel), "uint8")!;

/** NVIDIA's Python client from PyPI, unmodified: models for every payload format, loaded and changed on request. */

const python = await pythonWithTritonClient();
const script = fileURLToPath(new URL("./test-official-client-models.py", import.meta.url));
const loadedOnRequest = [
  tritonModelName(defaultModel, "preprocess"),
  u8ModelName,
  tritonModelName(defaultModel, "jpeg"),
] as const;

interface ClientResults {
  readonly before: Readonly<Record<string, boolean>>;
  readonly loaded: Readonly<Record<string, boolean>>;
  readonly embeddings: Readonly<Record<string, readonly number[]>>;
  /** Queue delays in microseconds: with an override, and with the file again. */
  readonly delays: readonly number[];
  readonly counted: number;
  readonly after: Readonly<Record<string, boolean>>;
  readonly rejection: string;
  readonly wrongConfig: string;
}

interface RunningServer {
  readonly targets: readonly string[];
  stop(): Promise<void>;
}

const servers: readonly {
  readonly name: string;
  readonly missing: string;
  start(repository: TestRepository): Promise<RunningServer>;
}[] = [
  {
    name: "this project's server",
    missing: "",
    async start(repository) {
      const server = await startTritonEmulator(
        repository.flags({
          "model-control-mode": "explicit",
          "load-model": [fp32Name],
        }),
        { log: () => {} },
      );
      const targets = [server.ports.http, server.ports.grpc].map((port) => `127.0.0.1:${port}`);
      return { targets, stop: () => server.stop() };
    },
  },
  {
    name: "a real Triton server",
    missing: realTritonMissing,
    async start(repository) {
      const server = await startRealTriton(repository.path, {
        flags: ["--model-control-mode=explicit", `--load-model=${fp32Name}`],
      });
      return { targets: [server.httpTarget, server.grpcTarget], stop: () => server.stop() };
    },
  },
];

for (const { name, missing: serverMissing, start } of servers) {
  const missing = python.missing || serverMissing;
  describe.skipIf(missing !== "")(
    `tritonclient from PyPI with ${name}${missing === "" ? "" : ` (skipped: ${missing})`}`,
    () => {
      let repository: TestRepository | undefined;
      let server: RunningServer | undefined;
      let results: Readonly<Record<"http" | "grpc", ClientResults>>;

      beforeAll(async () => {
        repository = await fullTestRepository();
        server = await start(repository);
        const folder = await mkdtemp(join(tmpdir(), "clipstack-forms-"));
        const pixels = Uint8Array.from({ length: pixelBytes }, (_, at) => (at * 7919) % 256);
        await writeFile(join(folder, "pixels"), pixels);
        await writeFile(
          join(folder, "tensor"),
          new Uint8Array(normalised(pixels, imageTowerOf(defaultModel).input).buffer),
        );
        await writeFile(join(folder, "file"), pngOf(224, 224, pixels));
        const { stdout } = await promisify(execFile)(
          python.path,
          [script, ...server.targets, folder],
          { maxBuffer: 64 * 1024 * 1024 },
        );
        await rm(folder, { recursive: true });
        results = JSON.parse(stdout);
      });
      afterAll(async () => {
        await server?.stop();
        await repository?.remove();
      });

      describe.each(["http", "grpc"] as const)("over %s", (protocol) => {
        const all = (value: boolean) =>
          Object.fromEntries(loadedOnRequest.map((model) => [model, value]));

        test("loads models on request", () => {
          expect(results[protocol].before).toEqual(all(false));
          expect(results[protocol].loaded).toEqual(all(true));
        });

        test("returns one embedding for every payload format of an image", () => {
          const { embeddings } = results[protocol];
          const formats = Object.keys(embeddings);
          expect(formats).toContain("BYTES");
          expect(formats.length).toBe(protocol === "http" ? 8 : 4);
          const [first] = Object.values(embeddings);
          for (const embedding of Object.values(embeddings)) {
            expect(embedding).toHaveLength(defaultModel.embedding.width);
            expect(cosine(embedding, first!)).toBeGreaterThan(0.99999);
          }
        });

        test("changes a model's configuration without a restart, and back", () => {
          expect(results[protocol].delays).toEqual([77, 77, 0]);
          expect(results[protocol].counted).toBeGreaterThanOrEqual(0);
        });

        test("unloads models and rejects requests for them", () => {
          expect(results[protocol].after).toEqual(all(false));
          expect(results[protocol].rejection).toContain(
            `Request for unknown model: '${u8ModelName}'`,
          );
        });

        test("rejects an invalid configuration", () => {
          expect(results[protocol].wrongConfig).not.toBeNull();
        });
      });
    },
  );
}

function cosine(a: readonly number[], b: readonly number[]): number {
  const dot = a.reduce((sum, value, at) => sum + value * b[at]!, 0);
  return dot / (Math.hypot(...a) * Math.hypot(...b));
}
