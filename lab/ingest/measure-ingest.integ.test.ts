import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { realTritonMissing, realTritonProgram } from "../../client/triton/test-real-triton.ts";
import { parsePublished } from "../capacity/published.ts";
import { runToEnd } from "../load/run-process.ts";

const script = fileURLToPath(new URL("./measure-ingest.ts", import.meta.url));

test.skipIf(realTritonMissing !== "")(
  `measures every payload format on one and two cores of a real Triton server${realTritonMissing === "" ? "" : ` (skipped: ${realTritonMissing})`}`,
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "clipstack-ingest-test-"));
    try {
      const file = join(folder, "clipstack-ingest.json");
      const home = join(realTritonProgram("tritonserver"), "..", "..");
      const options = ["--rounds", "1", "--seconds", "1", "--output", file];
      await runToEnd(
        {
          command: [process.execPath, "--import", "tsx", script],
          args: options,
          env: { CLIPSTACK_REAL_TRITON: home },
        },
        "bench:ingest",
        AbortSignal.timeout(240_000),
      );
      const { figures } = parsePublished(await readFile(file, "utf8"), "clipstack-ingest.json");
      const ms = (id: string) => figures.find((figure) => figure.id === id)?.value ?? Number.NaN;
      expect(figures.filter(({ quantity }) => quantity === "ingest").length).toBe(12);
      for (const { id, value } of figures) expect(value, id).toBeGreaterThan(0);
      // 602 kB and 10 kB: processor time, which is independent of other load
      for (const protocol of ["http", "grpc"]) {
        expect(ms(`${protocol}-fp32-1`)).toBeGreaterThan(ms(`${protocol}-jpeg-1`));
      }
    } finally {
      await rm(folder, { recursive: true });
    }
  },
  300_000,
);
