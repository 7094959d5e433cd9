import { describe, expect, test } from "vitest";
import type { PixelInput } from "./model-spec.ts";
import { catalogueSpecs, modelCatalogue } from "./models/index.ts";
import {
  daliParameters,
  parseDaliParameters,
  parsePreprocessParameters,
  preprocessParameters,
} from "./preprocess-parameters.ts";

const size = { width: 320, height: 224 };
const resizes: PixelInput["resize"][] = [
  { mode: "shortest-edge", edge: 256 },
  { mode: "squash" },
  { mode: "letterbox", fill: [114, 0, 255] },
  { mode: "centre-crop", fraction: 0.875 },
];

type Parameters = Readonly<Record<string, { readonly string_value: string }>>;

const given = (parameters: object): Parameters =>
  Object.fromEntries(
    Object.entries(parameters).map(([name, value]) => [name, { string_value: value }]),
  );

test.each(resizes)("parameters of $mode are read back", (resize) => {
  const input: PixelInput = { size, resize, filter: "bilinear", rgbConversion: "before-resize" };
  expect(parsePreprocessParameters(given(preprocessParameters(input, 5_000)))).toEqual({
    input,
    maxImagePixels: 5_000,
  });
});

test.each(catalogueSpecs)("parameters of $name are read back", ({ towers }) => {
  const { size, resize, filter, rgbConversion } = towers.image!.input;
  const input = { size, resize, filter, rgbConversion };
  expect(parsePreprocessParameters(given(preprocessParameters(input, 40_000_000)))).toMatchObject({
    input,
  });
});

test.each(catalogueSpecs)("DALI's parameters of $name are read back", ({ towers }) => {
  const { tensor: _, ...input } = towers.image!.input;
  const negative = { ...input, mean: [-0.5, 1e-7, 3], channelOrder: "bgr" } as const;
  for (const each of [input, negative]) {
    const parameters = given(
      daliParameters({ tensor: "image", ...each, mean: [...each.mean] }, 5_000),
    );
    expect(parseDaliParameters(parameters)).toMatchObject({ input: each, maxImagePixels: 5_000 });
  }
});

test("fails on an invalid parameter of DALI, by its name", () => {
  const { input } = modelCatalogue.get("openclip-vit-b32")!.towers.image!;
  const parameters = given({ ...daliParameters(input, 5_000), channel_order: "gbr" });
  expect(parseDaliParameters(parameters)).toEqual({
    problem: expect.stringMatching(/^channel_order .*, got 'gbr'$/),
  });
});

test("ViT-B/32 has these parameters", () => {
  const { input } = modelCatalogue.get("openclip-vit-b32")!.towers.image!;
  expect(preprocessParameters(input, 40_000_000)).toEqual({
    max_image_pixels: "40000000",
    width: "224",
    height: "224",
    resize: "shortest-edge",
    resize_edge: "224",
    filter: "bicubic",
    rgb_conversion: "after-resize",
  });
});

describe("fails", () => {
  const valid = given(
    preprocessParameters({ size, resize: { mode: "squash" }, filter: "bicubic" }, 100),
  );
  const problemOf = (changes: Record<string, string | undefined>) => {
    const changed = { ...valid, ...given(changes) };
    for (const [name, value] of Object.entries(changes)) {
      if (value === undefined) delete changed[name];
    }
    const parsed = parsePreprocessParameters(changed);
    return "problem" in parsed ? parsed.problem : undefined;
  };

  test.each([
    [{ max_image_pixels: "many" }, "max_image_pixels must be a number of pixels, got 'many'"],
    [{ width: "0" }, "width must be 1 to 4096, got '0'"],
    [{ height: undefined }, "height must be a whole number, 1 to 4096, got ''"],
    [{ resize: "shortest-edge" }, "resize_edge must be a whole number, 1 to 8192, got ''"],
    [
      { resize: "crop" },
      "resize must be one of shortest-edge, squash, letterbox, centre-crop, got 'crop'",
    ],
    [
      { resize: "letterbox", letterbox_fill: "1,2" },
      "letterbox_fill must be a list of three numbers, one per channel, got '1,2'",
    ],
    [
      { resize: "letterbox", letterbox_fill: "1,2,x" },
      "letterbox_fill must be a whole number, 0 to 255, got '1,2,x'",
    ],
    [{ resize: "centre-crop", crop_fraction: "2" }, "crop_fraction must not exceed 1, got '2'"],
    [
      { filter: "nearest" },
      "filter must be one of bicubic, bilinear, tensorflow-bilinear, got 'nearest'",
    ],
    [
      { rgb_conversion: "never" },
      "rgb_conversion must be one of before-resize, after-resize, got 'never'",
    ],
  ])("%o", (changes, problem) => {
    expect(problemOf(changes)).toBe(problem);
  });
});
