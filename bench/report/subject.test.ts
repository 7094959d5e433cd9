import { expect, test } from "vitest";
import { parseBenchRecord } from "../record/bench-record.ts";
import { benchRecordText } from "../record/record-text.ts";
import { allFacts } from "./subject.ts";
import { testBenchRecord } from "./test-bench-record.ts";

/** Record with every optional fact of the subject. */
function describedRecord() {
  const record = testBenchRecord();
  const [environment] = record.subject.environments;
  const [first, ...rest] = environment!.services;
  const gpus = [
    {
      id: "GPU-1",
      powerWatts: 148.6,
      powerLimitWatts: 150,
      smClockMHz: 1_410,
      memoryClockMHz: 6_251,
      temperatureC: 71,
      throttleReasons: 0x4,
    },
  ];
  return testBenchRecord({
    subject: {
      ...record.subject,
      commandLine: ["bench", "--url", "onnx-http=http://***@host:8010", "--texts", "my texts"],
      driver: "560.35.03",
      servers: [
        {
          service: "triton-onnx",
          name: "triton",
          version: "2.51.0",
          software: {
            tritonRelease: "24.10",
            cuda: "12.6.2",
            tensorrt: "10.5.0",
            onnxRuntime: "1.19.2",
          },
        },
      ],
      machine: {
        ...record.subject.machine,
        governor: "performance",
        limits: { cpus: 1.5, memoryMiB: 2_048 },
      },
      model: {
        ...record.subject.model,
        precision: "fp16",
        derivedFromSha256: "cd".repeat(32),
        toolVersions: { optimiser: "4" },
      },
      environments: [
        {
          ...environment!,
          services: [{ ...first!, limits: { cpu: "4", memory: "8Gi" } }, ...rest],
        },
      ],
    },
    loadPoints: record.loadPoints.slice(0, 3).map((point, i) => ({
      ...point,
      gpu:
        i === 2
          ? undefined
          : {
              source: "nvidia-smi",
              gpus: gpus.map((gpu) =>
                i === 0 ? gpu : { ...gpu, smClockMHz: 1_695, throttleReasons: 0x1 },
              ),
            },
    })),
  });
}

const factsOf = (record: ReturnType<typeof testBenchRecord>) =>
  Object.fromEntries(allFacts(record)) as Readonly<Record<string, string>>;

test("a record with every fact of the subject is valid", () => {
  const text = benchRecordText(describedRecord());
  expect(parseBenchRecord(text, "x").subject).toEqual(
    JSON.parse(JSON.stringify(describedRecord().subject)),
  );
});

test("the report states command, versions, limits, GPU state and model manifest", () => {
  expect(factsOf(describedRecord())).toMatchObject({
    Command: "clipstack bench --url onnx-http=http://***@host:8010 --texts 'my texts'",
    "CPU frequency governor": "performance",
    "Limits of the load generator": "1.5 cores, 2.0 GiB of memory",
    Servers:
      "triton-onnx: triton 2.51.0, image release 24.10, ONNX Runtime 1.19.2, TensorRT 10.5.0, CUDA 12.6.2",
    "Limits of the services": "embed of single-gpu: cpu 4, memory 8Gi",
    "NVIDIA driver": "560.35.03",
    "GPU during the load points":
      "SM clock 1410 to 1695 MHz, memory clock 6251 MHz, power 149 W, power limit 150 W, temperature 71 °C, throttled by power limit in 1 of 2 load points",
    "Model manifest": `fp16, derived from sha256 ${"cd".repeat(32)}, optimiser 4`,
  });
});

test("a GPU that was only idle was not throttled", () => {
  const record = describedRecord();
  const gpu = record.loadPoints[1]!.gpu;
  const idle = { ...record, loadPoints: [{ ...record.loadPoints[0]!, gpu }] };
  expect(factsOf(idle)["GPU during the load points"]).toMatch(/, not throttled$/);
});

test("facts that a record lacks are left out", () => {
  const names = Object.keys(factsOf(testBenchRecord({ loadPoints: [] })));
  for (const absent of ["Command", "NVIDIA driver", "Model manifest", "Limits of the services"]) {
    expect(names).not.toContain(absent);
  }
});
