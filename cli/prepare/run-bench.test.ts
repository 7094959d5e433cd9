import { cpSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import { testBenchRecord } from "../../bench/report/test-bench-record.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { synthesized } from "../test-synthesized.ts";
import { sharedModel } from "./bench-models.ts";
import { devicesOf } from "./bench-output.ts";
import { withPreparedBench } from "./run-bench.ts";

/** Environment with two T4 GPUs. */
const deployed = {
  ...dockerDocument().output.environment.value,
  accelerator: "gpu",
  gpu: { name: "t4", count: 2, vramMiB: 16_384, usdPerHour: 0.5, priceDate: "2026-01" },
} as const;
const { subject } = testBenchRecord();

test("the peak of an environment is that of its deployed GPUs", () => {
  expect([...devicesOf(subject, [deployed])]).toEqual([
    ["two-services", { name: "t4", count: 2, fp16DenseTflops: 65 }],
  ]);
});

test("the tiny model has no peak", () => {
  const model = { ...subject.model, architecture: "tiny" };
  expect(devicesOf({ model }, [deployed]).size).toBe(0);
});

describe("an environment with its own model file", () => {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-own-model-"));
  afterEach(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Environment with the tiny model in its repository. */
  async function ownRepository(name: string) {
    const repository = join(folder, name);
    const model = join(repository, "openclip_vit_b32/1/model.onnx");
    mkdirSync(join(model, ".."), { recursive: true });
    cpSync(await tinyModel(), model);
    const { outdir, file } = synthesized(dockerDocument({ repository }));
    return { model, outdir, file: { name, file, displayPath: file, editedByHand: false } };
  }

  test("is the reference of the embeddings", async () => {
    const { model, outdir } = await ownRepository("own");
    vi.stubEnv("CDKTF_OUTDIR", outdir);
    const prepared = await withPreparedBench(
      {
        environments: ["two-services"],
        args: {
          ...{ weights: "generated", synth: false, portOffset: 0, seed: 1 },
          ...{ window: 1, windows: 3, warmup: 1, rounds: 1, duration: 1 },
        },
        endpoints: [
          { endpoint: "onnx-http", payload: "fp32", serialization: "binary", byName: true },
        ],
        signal: new AbortController().signal,
        hold: () => () => {},
        onEvent: () => {},
      },
      async ({ record, sources }) => ({ record, sources }),
    );
    expect(prepared.record.subject.model).toMatchObject({ name: model });
    // no file replaces it: the environment's own volumes are used
    expect(prepared.sources).toMatchObject([{ kind: "simulated", modelFiles: undefined }]);
  });

  test("fails with another environment that loads a different file", async () => {
    const [one, two] = [await ownRepository("one"), await ownRepository("two")];
    expect(() =>
      sharedModel([one.file, two.file], { spec: defaultModel, modality: "image" }),
    ).toThrow(
      `environments of one run must load the same model file, got ${one.model} (one) and ${two.model} (two): measure one at a time`,
    );
  });
});
