import { type PixelInput, pixelInput } from "./model-spec.ts";

/** Parameter that every preprocessing model has: maximum image size in pixels. */
export const maxImagePixelsParameter = "max_image_pixels";

/**
 * `parameters` in the `config.pbtxt` of a preprocessing model, which converts image files to pixels. The Python model and the Triton
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
  /** `centre-crop`: side of the square in shorter edges of the image: `0.875`. */
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

/** Parameter by the field of {@link PixelInput} that it sets. */
const parameterOf: Readonly<Record<string, string>> = {
  "size.width": "width",
  "size.height": "height",
  "resize.mode": "resize",
  "resize.edge": "resize_edge",
  "resize.fill": "letterbox_fill",
  "resize.fraction": "crop_fraction",
  filter: "filter",
  rgbConversion: "rgb_conversion",
};

/** Parameters of a `config.pbtxt`; unknown ones are ignored. */
type GivenParameters = Readonly<Record<string, { readonly string_value: string } | undefined>>;

export interface PreprocessSettings {
  readonly input: PixelInput;
  readonly maxImagePixels: number;
}

export type ParsedParameters =
  | PreprocessSettings
  /** First invalid parameter: `filter must be …, got 'x'`. */
  | { readonly problem: string };

/** Inverse of {@link preprocessParameters}. */
export function parsePreprocessParameters(given: GivenParameters): ParsedParameters {
  const value = (name: string) => given[name]?.string_value;
  const number = (name: string) => toNumber(value(name));
  const limit = value(maxImagePixelsParameter) ?? "";
  if (!/^[1-9]\d{0,9}$/.test(limit)) {
    return { problem: `${maxImagePixelsParameter} must be a number of pixels, got '${limit}'` };
  }
  const mode = value("resize");
  const { data, error } = pixelInput.safeParse({
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
  const name = parameterOf[path.slice(0, 2).join(".")] ?? "resize";
  return { problem: `${name} ${message}, got '${value(name) ?? ""}'` };
}

/** Decimal number; undefined, which is invalid everywhere, for other text. */
function toNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+(\.\d+)?$/.test(text) ? Number(text) : undefined;
}
