import sharp, { type Metadata, type Sharp, type SharpOptions } from "sharp";

/**
 * The most pixels of a photo, and of all photos that are decoded at the same time: some formats are decoded whole, at up to
 * six bytes a pixel. The largest sensors have 200 million.
 */
export const maxPixels = 268_000_000;

export interface PixelBudget {
  /** Runs the work when its pixels are free, in the order of the calls; what needs more than there are runs by itself. */
  run<Result>(pixels: number, work: () => Promise<Result>): Promise<Result>;
}

export function pixelBudget(limit: number): PixelBudget {
  const waiting: { readonly pixels: number; readonly start: () => void }[] = [];
  let taken = 0;

  function startNext(): void {
    for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
      if (taken > 0 && taken + next.pixels > limit) return;
      waiting.shift();
      taken += next.pixels;
      next.start();
    }
  }

  return {
    async run(pixels, work) {
      await new Promise<void>((start) => {
        waiting.push({ pixels, start });
        startNext();
      });
      try {
        return await work();
      } finally {
        taken -= pixels;
        startNext();
      }
    },
  };
}

const budget = pixelBudget(maxPixels);

/**
 * Decode a photo, with a bounded number of pixels at once in this process.
 *
 * @throws {Error} one line, when it has more pixels than are decoded; from `work` and libvips, when it cannot be read
 */
export async function decodePhoto<Result>(
  input: string | Buffer,
  options: SharpOptions,
  work: (image: Sharp, metadata: Metadata) => Promise<Result>,
): Promise<Result> {
  // libvips would say that the limit is exceeded, and neither by what nor which
  const image = sharp(input, { ...options, sequentialRead: true, limitInputPixels: false });
  const metadata = await image.metadata();
  const { width, height } = metadata;
  if (!(width * height <= maxPixels)) {
    throw new Error(`is too large: ${width} × ${height}, of at most ${maxPixels} pixels`);
  }
  return budget.run(width * height, () => work(image, metadata));
}
