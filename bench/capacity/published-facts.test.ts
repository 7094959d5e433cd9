import { expect, test } from "vitest";
import { gpuCatalogue, gpuNames } from "../../contract/gpus.ts";
import { publishedFacts, publishedTimes } from "./published-facts.ts";

const peaks = Object.fromEntries(
  gpuNames.map((name) => [name, gpuCatalogue[name].fp16DenseTflops]),
);

test("a GPU has its peak in the catalogue or in gpu-peaks.json, not in both", () => {
  const { published } = publishedFacts(peaks);
  const derived = published.get("gpu-peaks")?.figures.map(({ gpu }) => gpu) ?? [];
  expect(derived).not.toEqual([]);
  expect(derived.filter((gpu) => gpuNames.some((name) => name === gpu))).toEqual([]);
});

test.each(["onnxruntime", "tensorrt"] as const)(
  "a GPU without figures is no slower than one with figures and a lower peak (%s)",
  (backend) => {
    const { compute, measured } = publishedTimes(publishedFacts(peaks), 10_000);
    const known = gpuNames.filter((name) => measured(name, backend));
    expect(known).not.toEqual([]);
    for (const name of gpuNames.filter((one) => !measured(one, backend))) {
      for (const slower of known.filter((one) => (peaks[one] ?? 0) <= (peaks[name] ?? 0))) {
        const { firstMs } = compute(name, backend);
        expect(firstMs, `${name}, ${slower}`).toBeLessThanOrEqual(compute(slower, backend).firstMs);
      }
    }
  },
);
