import { expect, test } from "vitest";
import { gpuCatalogue, gpuNames } from "../../contract/gpus.ts";
import { publishedFacts, publishedTimes } from "./published-facts.ts";

const peaks = Object.fromEntries(
  gpuNames.map((name) => [name, gpuCatalogue[name].fp16DenseTflops]),
);

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
