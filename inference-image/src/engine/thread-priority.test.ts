import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { getPriority } from "node:os";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { tinyModel } from "../model/test-model.ts";
import { openSession } from "./onnx-session.ts";
import { createPreprocessor } from "./preprocess.ts";
import { niceness } from "./thread-priority.mjs";

const photo = await readFile(
  fileURLToPath(new URL("../../../bench/samples/dunes.jpg", import.meta.url)),
);

/** How many threads of this process have a nice value, by the value. */
function threadsByNiceness(): ReadonlyMap<number, number> {
  const counts = new Map<number, number>();
  for (const thread of readdirSync("/proc/self/task")) {
    const nice = getPriority(Number(thread));
    counts.set(nice, (counts.get(nice) ?? 0) + 1);
  }
  return counts;
}

test.skipIf(process.platform !== "linux")(
  "the runtime's threads yield to the event loop, and those that decode yield to both",
  async () => {
    const own = getPriority();
    const [runtime, decoding] = [niceness.runtime, niceness.decoding];
    expect(own).toBeLessThan(runtime);
    const before = threadsByNiceness();

    // the thread that calls the runtime, and one that it starts
    const session = await openSession({ modelPath: await tinyModel(), intraOpThreads: 2 });
    const opened = threadsByNiceness();
    expect(opened.get(runtime) ?? 0).toBeGreaterThanOrEqual((before.get(runtime) ?? 0) + 2);
    expect(opened.get(decoding)).toBe(before.get(decoding));

    const preprocessor = createPreprocessor({ maxPixels: 40_000_000, threads: 1 });
    await preprocessor.run(photo);
    expect(threadsByNiceness().get(decoding) ?? 0).toBeGreaterThan(opened.get(decoding) ?? 0);
    expect(getPriority()).toBe(own);

    await preprocessor.close();
    await session.close();
  },
);
