import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { openHttpClient } from "../requests/http-client.ts";
import { throttleReasonNames } from "./gpu-readings.ts";
import {
  gpusOfTriton,
  gpuUseArgs,
  olderGpuUseArgs,
  parseGpuUse,
  startGpuSampler,
  summarizeGpus,
} from "./gpu-use.ts";
import { parseMetrics } from "./prometheus.ts";

test("Triton's metrics contain the readings of each GPU", () => {
  const page = [
    'nv_gpu_utilization{gpu_uuid="GPU-a"} 0.97',
    'nv_gpu_memory_used_bytes{gpu_uuid="GPU-a"} 3006477312.000000',
    'nv_gpu_memory_total_bytes{gpu_uuid="GPU-a"} 17171480576',
    'nv_gpu_utilization{gpu_uuid="GPU-b"} 0.5',
    'nv_gpu_power_usage{gpu_uuid="GPU-b"} 71.5',
    'nv_inference_count{model="m"} 4',
  ].join("\n");
  expect(gpusOfTriton(parseMetrics(page))).toEqual([
    { id: "GPU-a", utilization: 0.97, memoryUsedMiB: 2867, memoryTotalMiB: 16376 },
    { id: "GPU-b", utilization: 0.5, powerWatts: 71.5 },
  ]);
});

test("nvidia-smi prints the same readings, and [N/A] for a value that a GPU does not report", () => {
  expect(gpuUseArgs[0]).toBe(
    "--query-gpu=uuid,utilization.gpu,memory.used,memory.total,power.draw,power.limit,clocks.sm,clocks.mem,temperature.gpu,clocks_event_reasons.active",
  );
  const text = [
    "GPU-8a56a4bc-1, 97, 2866, 16376, 214.35, 320.00, 2745, 11201, 67, 0x0000000000000004",
    "GPU-2, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]",
    "no devices",
    "",
  ].join("\n");
  expect(parseGpuUse(text)).toEqual([
    {
      id: "GPU-8a56a4bc-1",
      utilization: 0.97,
      memoryUsedMiB: 2866,
      memoryTotalMiB: 16376,
      powerWatts: 214.35,
      powerLimitWatts: 320,
      smClockMHz: 2745,
      memoryClockMHz: 11201,
      temperatureC: 67,
      throttleReasons: 4,
    },
    { id: "GPU-2" },
  ]);
});

test("older drivers have another name for the throttle reasons", () => {
  expect(olderGpuUseArgs[0]).toContain("temperature.gpu,clocks_throttle_reasons.active");
});

test("clocks are means, the temperature is the maximum, and throttle reasons of all samples are kept", () => {
  const reading = (smClockMHz: number, temperatureC: number, throttleReasons: number) => [
    { id: "a", smClockMHz, temperatureC, throttleReasons },
  ];
  const use = summarizeGpus("nvidia-smi", [reading(1_700, 60, 0x4), reading(1_501, 71, 0x24)]);
  expect(use?.gpus[0]).toMatchObject({
    smClockMHz: 1_601,
    temperatureC: 71,
    throttleReasons: 0x24,
  });
  expect(throttleReasonNames(0x24)).toEqual(["power limit", "temperature (software)"]);
  expect(throttleReasonNames(0)).toEqual([]);
  expect(throttleReasonNames(0x201)).toEqual(["idle", "0x200"]);
});

test("utilisation and power are means over the samples, memory is the maximum, per GPU", () => {
  const readings = [
    [
      { id: "a", utilization: 0.2, memoryUsedMiB: 900, memoryTotalMiB: 1_000, powerWatts: 200 },
      { id: "b", utilization: 1 },
    ],
    [
      { id: "a", utilization: 0.4, memoryUsedMiB: 700, memoryTotalMiB: 1_000, powerWatts: 240 },
      { id: "b", utilization: 0 },
    ],
  ];
  const use = summarizeGpus("nvidia-smi", readings);
  expect(use?.source).toBe("nvidia-smi");
  expect(use?.gpus[0]?.utilization).toBeCloseTo(0.3, 9);
  expect(use?.gpus[0]).toMatchObject({ id: "a", memoryUsedMiB: 900, powerWatts: 220 });
  expect(use?.gpus[1]).toMatchObject({ id: "b", utilization: 0.5, memoryUsedMiB: undefined });
});

test("without readings the summary is undefined", () => {
  expect(summarizeGpus("triton metrics", [[], []])).toBeUndefined();
});

/** Calls `use` with the URL of a server that returns a metrics page. */
async function withPage<T>(page: string, use: (url: string) => Promise<T>): Promise<T> {
  const server = createServer((_request, response) => response.end(page));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

async function sampled(page: string, readGpus?: Parameters<typeof startGpuSampler>[2], ms = 300) {
  const http = openHttpClient();
  try {
    return await withPage(page, async (url) => {
      const startMs = performance.now();
      const sampler = startGpuSampler(http, [{ name: "triton", role: "triton", url }], readGpus);
      await sleep(ms);
      return sampler.stop(startMs, performance.now());
    });
  } finally {
    await http.close();
  }
}

test("GPUs are read from Triton's metrics if it reports any", async () => {
  const page = 'nv_gpu_utilization{gpu_uuid="GPU-a"} 0.25\n';
  expect(await sampled(page, async () => [{ id: "GPU-b" }])).toMatchObject({
    source: "triton metrics",
    gpus: [{ id: "GPU-a", utilization: 0.25 }],
  });
});

test("nvidia-smi adds the readings that Triton does not report, and replaces none", async () => {
  const page = 'nv_gpu_utilization{gpu_uuid="GPU-a"} 0.25\n';
  const readGpus = async () => [
    { id: "GPU-a", utilization: 0.5, powerWatts: 70.5 },
    { id: "GPU-b", powerWatts: 30 },
  ];
  expect(await sampled(page, readGpus)).toEqual({
    source: "triton metrics",
    gpus: [{ id: "GPU-a", utilization: 0.25, powerWatts: 70.5 }],
  });
});

test("nvidia-smi is called once if it adds no reading", async () => {
  const names = ["utilization", "memory_used_bytes", "memory_total_bytes", "power_usage"];
  const page = names.map((name) => `nv_gpu_${name}{gpu_uuid="GPU-a"} 1`).join("\n");
  const readGpus = vi.fn(async () => [{ id: "GPU-a" }]);
  expect(await sampled(page, readGpus, 1_300)).toMatchObject({ source: "triton metrics" });
  expect(readGpus).toHaveBeenCalledTimes(1);
});

test("GPUs are read with nvidia-smi if Triton reports none", async () => {
  const use = await sampled("", async () => [{ id: "GPU-b", memoryUsedMiB: 7 }]);
  expect(use).toMatchObject({ source: "nvidia-smi", gpus: [{ id: "GPU-b", memoryUsedMiB: 7 }] });
});

test("without a GPU the result is undefined, also if nvidia-smi fails", async () => {
  expect(await sampled("")).toBeUndefined();
  expect(await sampled("", () => Promise.reject(new Error("no driver")))).toBeUndefined();
});
