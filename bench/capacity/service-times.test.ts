import { expect, test } from "vitest";
import { gpuCatalogue, gpuNames } from "../../contract/gpus.ts";
import { openclipVitL14 } from "../../contract/models/openclip-vit-l14.ts";
import { siglip2Base224 } from "../../contract/models/siglip2-base-224.ts";
import { publishedTimes } from "./service-times.ts";

const peaks = Object.fromEntries(
  gpuNames.map((name) => [name, gpuCatalogue[name].fp16DenseTflops]),
);

test.each(["onnxruntime", "tensorrt"] as const)(
  "a GPU without figures is no slower than one with figures and a lower peak (%s)",
  (backend) => {
    const { compute, measured } = publishedTimes(10_000);
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

test("another model takes the time of its own arithmetic and sends its own bytes", () => {
  const [published, large, siglip] = [undefined, openclipVitL14, siglip2Base224].map((spec) =>
    publishedTimes(10_000, spec),
  );
  const perImage = published!.compute("l4", "tensorrt").perImageMs;
  // 81.08 against 4.41 multiply-accumulates (10⁹) per image
  expect(large!.compute("l4", "tensorrt").perImageMs / perImage).toBeCloseTo(81.08 / 4.41, 2);
  expect(large!.compute("l4", "tensorrt").firstMs).toBeGreaterThan(
    large!.compute("l4", "tensorrt").perImageMs,
  );
  expect(gpuNames.some((name) => large!.measured(name, "tensorrt"))).toBe(false);
  expect(siglip!.bytes).toEqual({
    fp32: 602_112,
    uint8: 150_528,
    embedding: { binary: 3_072, json: (10_700 * 768) / 512 },
  });
});
