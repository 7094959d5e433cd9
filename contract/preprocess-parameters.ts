import type { z } from "zod";
import { type ImageInput, imageInput, type PixelInput, pixelInput } from "./model-spec.ts";

/** Default of the largest accepted image, in decoded pixels. */
export const maxImagePixels = 40_000_000;

/** Parameter that every preprocessing model has: maximum image size in pixels. */
export const maxImagePixelsParameter = "max_image_pixels";

/**
 * `parameters` in the `config.pbtxt` of a preprocessing model, which converts image files to pixels. The Python model and the Triton server
 * emulator read them. Values are strings.
 */
export interface PreprocessParameters {
  /** Maximum image size in pixels: `40000000`. */
  readonly [maxImagePixelsParameter]: string;
  /** Size of the result in pixels. */
  readonly width: string;
  readonly height: string;
  /** Mode of {@link PixelInput.resize}. */
  readonly resize: string;
  /** `shortest-edge`: shorter edge after the resize, in pixels. */
  readonly resize_edge?: string;
  /** `letterbox`: fill colour, 8-bit RGB: `114,114,114`. */
  readonly letterbox_fill?: string;
  /** Only for `centre-crop`: side of the cropped square, as a fraction of the shorter edge of the image, such as `0.875`. */
  readonly crop_fraction?: string;
  readonly filter: string;
  /** Omitted if the spec does. */
  readonly rgb_conversion?: string;
}

/** Parameters of the preprocessing model of an image input. */
export function preprocessParameters(
  { size, resize, filter, rgbConversion }: PixelInput,
  maxImagePixels: number,
): PreprocessParameters {
  return {
    [maxImagePixelsParameter]: String(maxImagePixels),
    width: String(size.width),
    height: String(size.height),
    resize: resize.mode,
    ...(resize.mode === "shortest-edge" && { resize_edge: String(resize.edge) }),
    ...(resize.mode === "letterbox" && { letterbox_fill: resize.fill.join(",") }),
    ...(resize.mode === "centre-crop" && { crop_fraction: String(resize.fraction) }),
    filter,
    ...(rgbConversion !== undefined && { rgb_conversion: rgbConversion }),
  };
}

/**
 * `parameters` in the `config.pbtxt` of a DALI pipeline, which also normalises the pixels. Only the Triton emulator reads them: the
 * pipeline contains these facts, and Triton's DALI backend ignores unknown parameters.
 */
export interface DaliParameters extends PreprocessParameters {
  readonly value_range: string;
  /** Per channel, in `channel_order`: `0.5,0.5,0.5`. */
  readonly mean: string;
  readonly std: string;
  readonly channel_order: string;
  readonly layout: string;
}

/** Parameters of the DALI pipeline of an image input. */
export function daliParameters(input: ImageInput, maxImagePixels: number): DaliParameters {
  return {
    ...preprocessParameters(input, maxImagePixels),
    value_range: input.valueRange,
    mean: input.mean.join(","),
    std: input.std.join(","),
    channel_order: input.channelOrder,
    layout: input.layout,
  };
}

/** Parameter by the field of {@link ImageInput} that it sets. */
const parameterOf: Readonly<Record<string, string>> = {
  "size.width": "width",
  "size.height": "height",
  "resize.mode": "resize",
  "resize.edge": "resize_edge",
  "resize.fill": "letterbox_fill",
  "resize.fraction": "crop_fraction",
  filter: "filter",
  rgbConversion: "rgb_conversion",
  valueRange: "value_range",
  channelOrder: "channel_order",
};

/** Parameters of a `config.pbtxt`; unknown ones are ignored. */
type GivenParameters = Readonly<Record<string, { readonly string_value: string } | undefined>>;

export interface PreprocessSettings<Input extends PixelInput = PixelInput> {
  readonly input: Input;
  readonly maxImagePixels: number;
}

export type ParsedParameters<Input extends PixelInput = PixelInput> =
  | PreprocessSettings<Input>
  /** First invalid parameter: `filter must be …, got 'x'`. */
  | { readonly problem: string };

/** Inverse of {@link preprocessParameters}. */
export function parsePreprocessParameters(given: GivenParameters): ParsedParameters {
  return parseParameters(given, pixelInput, {});
}

/** Inverse of {@link daliParameters}. The name of the input tensor is that of the spec's default. */
export function parseDaliParameters(given: GivenParameters): ParsedParameters<ImageInput> {
  const value = (name: string) => given[name]?.string_value;
  // every number that JavaScript prints, with a sign or an exponent
  const numbers = (name: string) => value(name)?.split(",").map(Number);
  return parseParameters(given, imageInput, {
    valueRange: value("value_range"),
    mean: numbers("mean"),
    std: numbers("std"),
    channelOrder: value("channel_order"),
    layout: value("layout"),
  });
}

function parseParameters<Input extends PixelInput>(
  given: GivenParameters,
  schema: z.ZodType<Input>,
  others: Readonly<Record<string, unknown>>,
): ParsedParameters<Input> {
  const value = (name: string) => given[name]?.string_value;
  const number = (name: string) => toNumber(value(name));
  const limit = value(maxImagePixelsParameter) ?? "";
  if (!/^[1-9]\d{0,9}$/.test(limit)) {
    return { problem: `${maxImagePixelsParameter} must be a number of pixels, got '${limit}'` };
  }
  const mode = value("resize");
  const { data, error } = schema.safeParse({
    ...others,
    size: { width: number("width"), height: number("height") },
    resize: {
      mode,
      ...(mode === "shortest-edge" && { edge: number("resize_edge") }),
      ...(mode === "letterbox" && { fill: value("letterbox_fill")?.split(",").map(toNumber) }),
      ...(mode === "centre-crop" && { fraction: number("crop_fraction") }),
    },
    filter: value("filter"),
    rgbConversion: value("rgb_conversion"),
  });
  if (error === undefined) return { input: data, maxImagePixels: Number(limit) };
  const [{ path, message }] = error.issues as [(typeof error.issues)[number]];
  const field = path.slice(0, 2).join(".");
  const name = parameterOf[field] ?? (String(path[0]) in others ? String(path[0]) : "resize");
  return { problem: `${name} ${message}, got '${value(name) ?? ""}'` };
}

/** Parses a decimal number. Returns undefined for other text; no parameter accepts undefined. */
function toNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+(\.\d+)?$/.test(text) ? Number(text) : undefined;
}
