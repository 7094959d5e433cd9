import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { type Child, startChild } from "../../artefact/child-process.ts";
import { type MemoryReading, measureMemory, residentMiB } from "./memory.ts";

const children: Child[] = [];
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.stop(0)));
});

test("memory under load is the maximum reading, and idle memory is that before the load", async () => {
  const rest: MemoryReading = { residentMiB: 100, gpuMemoryMiB: 10 };
  const readings: MemoryReading[] = [
    { residentMiB: 300, gpuMemoryMiB: 10 },
    { residentMiB: 200, gpuMemoryMiB: 40 },
  ];
  let next = 0;
  const read = async () => readings[Math.min(next++, readings.length - 1)] as MemoryReading;
  const load = async () => {
    while (next < readings.length) await sleep(10);
  };
  expect(await measureMemory("embed", rest, read, load)).toEqual({
    service: "embed",
    residentMiB: 100,
    residentUnderLoadMiB: 300,
    gpuMemoryMiB: 10,
    gpuMemoryUnderLoadMiB: 40,
  });
});

test("unreadable values are absent", async () => {
  const result = await measureMemory(
    "embed",
    {},
    async () => ({}),
    async () => {},
  );
  expect(result.residentUnderLoadMiB).toBeUndefined();
});

test.skipIf(process.platform !== "linux")(
  "what a process keeps is in its resident memory",
  async () => {
    const child = startChild({
      command: [process.execPath],
      args: [
        "-e",
        "globalThis.kept = Buffer.alloc(200 * 1024 * 1024, 1); setInterval(() => {}, 9)",
      ],
      env: {},
    });
    children.push(child);
    const endsAt = performance.now() + 20_000;
    while ((residentMiB([child.pid]) ?? 0) < 200 && performance.now() < endsAt) await sleep(20);
    expect(residentMiB([child.pid])).toBeGreaterThan(200);
    expect(residentMiB([child.pid])).toBeLessThan(600);
  },
);

test("an ended process has no memory", async () => {
  const child = startChild({ command: [process.execPath], args: ["-e", ""], env: {} });
  await child.exited;
  expect(residentMiB([child.pid])).toBeUndefined();
});
