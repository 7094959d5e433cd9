import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { parseBenchRecord } from "../../bench/record/bench-record.ts";
import { localPytorch } from "../../cli/model/pytorch-baseline.ts";
import { runProgram } from "../../cli/shared/run-program.ts";
import { realTritonMissing, realTritonProgram } from "../../client/triton/test-real-triton.ts";

const project = fileURLToPath(new URL("../../", import.meta.url));
const output = mkdtempSync(join(tmpdir(), "clipstack-acceptance-test-"));
afterAll(() => rmSync(output, { recursive: true, force: true }));

const accept = (...args: readonly string[]) =>
  runProgram(
    process.execPath,
    ["--import", "tsx", join(project, "lab/gpu/acceptance.ts"), ...args],
    { timeoutMs: 600_000 },
  );

interface Acceptance {
  readonly device: string;
  readonly steps: readonly {
    readonly name: string;
    readonly ok: boolean;
    readonly result: unknown;
  }[];
}

const acceptance = () =>
  JSON.parse(readFileSync(join(output, "acceptance.json"), "utf8")) as Acceptance;

const triton = () => dirname(dirname(realTritonProgram("tritonserver")));

describe.skipIf(realTritonMissing !== "")(
  `the GPU acceptance run on the CPU${realTritonMissing && ` (skipped: ${realTritonMissing})`}`,
  () => {
    test("writes records of tritonserver and the gateway with embeddings that match the CPU", async () => {
      const { exitCode, stdout, stderr } = await accept(
        ...["--cpu", "--weights", "tiny", "--engines", "onnxruntime", "--output", output],
        ...["--triton", triton(), "--python", realTritonProgram("python")],
      );
      expect({ exitCode, output: exitCode === 0 ? "" : stdout + stderr }).toEqual({
        exitCode: 0,
        output: "",
      });
      const { device, steps } = acceptance();
      expect(device).toBe("cpu");
      expect(steps.filter(({ ok }) => !ok)).toEqual([]);
      const engines = steps.find(({ name }) => name === "engines")?.result;
      expect(engines).toEqual([
        expect.objectContaining({ engine: "onnxruntime", minCosine: expect.closeTo(1, 4) }),
        expect.objectContaining({ engine: "onnxruntime-fp16", minCosine: expect.closeTo(1, 4) }),
      ]);
      const record = parseBenchRecord(
        readFileSync(join(output, "onnxruntime.json"), "utf8"),
        "bench",
      );
      expect(record.failures).toEqual([]);
      expect(
        record.parity.map(({ endpoint, payload, passed }) => [endpoint, payload, passed]),
      ).toEqual([
        ["embed-http", "jpeg", true],
        ["onnx-grpc", "fp32", true],
        ["onnx-grpc", "uint8", true],
        ["onnx-http", "fp32", true],
      ]);
      const large = parseBenchRecord(
        readFileSync(join(output, "onnxruntime-large-batches.json"), "utf8"),
        "bench",
      );
      expect(large.loadPoints.map(({ imagesPerRequest }) => imagesPerRequest)).toEqual([64, 64]);
    });

    test("records a server that does not start and ends with code 1", async () => {
      const { exitCode, stdout } = await accept(
        ...["--cpu", "--weights", "tiny", "--engines", "onnxruntime", "--output", output],
        ...["--triton", "/missing", "--python", realTritonProgram("python")],
      );
      expect(exitCode).toBe(1);
      expect(stdout).toMatch(/FAILED onnxruntime: tritonserver .*: tritonserver ended/);
    });
  },
);

/** Folders of the packages of a Python and of its PYTHONPATH. */
async function packagesOf(python: string, pythonPath = ""): Promise<string> {
  const program = "import sysconfig; print(sysconfig.get_path('purelib'))";
  const { stdout } = await runProgram(python, ["-c", program], { timeoutMs: 60_000 });
  return [pythonPath, stdout.trim()].filter((folder) => folder !== "").join(":");
}

const { pytorch, noPytorch = "" } = await localPytorch({ onProgress: () => {} });

test.skipIf(realTritonMissing !== "" || pytorch === undefined)(
  `measures PyTorch beside its baseline${noPytorch && ` (skipped: ${noPytorch})`}`,
  async () => {
    const { exitCode, stdout } = await accept(
      ...["--cpu", "--weights", "tiny", "--engines", "pytorch", "--output", output],
      ...["--triton", triton(), "--python", pytorch!.command[0]!],
      ...["--packages", await packagesOf(pytorch!.command[0]!, pytorch!.env.PYTHONPATH)],
    );
    expect({ exitCode, stdout: exitCode === 0 ? "" : stdout }).toEqual({ exitCode: 0, stdout: "" });
    expect(acceptance().steps.map(({ name }) => name)).toContain("PyTorch baseline");
  },
);

test("fails when an option is wrong", async () => {
  const { exitCode, stderr } = await accept("--cpu", "--triton", "/missing", "--minutes", "0");
  expect(exitCode).toBe(2);
  expect(stderr.trim()).toBe("--minutes must be a number from above 0 to 120, got '0'");
});
