import { expect, test } from "vitest";
import { createTritonEmulator } from "./index.ts";

test("describes the model", async () => {
  const triton = await createTritonEmulator({ models: ["openclip-vit-b32"] });
  const response = await fetch(`${triton.httpUrl}/v2/models/openclip_vit_b32_u8`);
  expect(await response.json()).toMatchObject({
    inputs: [{ name: "image", datatype: "UINT8", shape: [-1, 224, 224, 3] }],
    outputs: [{ name: "embedding", datatype: "FP32", shape: [-1, 512] }],
  });
  await triton.close();
});
