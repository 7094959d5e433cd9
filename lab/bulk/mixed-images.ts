import sharp from "sharp";
import { loadImages, makeLoadImages } from "../../model-tools/samples/load-images.ts";

/** Images of 4 KB to 40 MP: thumbnails, photos, and large ones that are decoded row by row (JPEG) and as a whole (PNG, progressive JPEG, WebP). */
export async function makeMixedImages(): Promise<readonly Buffer[]> {
  const [small, photos, cameras] = await Promise.all([
    makeLoadImages({ width: 256, height: 192, count: 12, bytes: { min: 3_500, max: 4_500 } }),
    makeLoadImages({ ...loadImages.photo, count: 4 }),
    makeLoadImages({ ...loadImages.camera, count: 2 }),
  ]);
  const large = () => sharp(cameras[0]).resize(7744, 5164, { fit: "fill" });
  const whole = await Promise.all([
    large().jpeg({ quality: 80 }).toBuffer(),
    large().jpeg({ quality: 80, progressive: true }).toBuffer(),
    large().png({ compressionLevel: 1 }).toBuffer(),
    large().webp({ quality: 60, effort: 0 }).toBuffer(),
  ]);
  // every large image among small ones
  return whole.flatMap((image, index) => [
    ...small.slice(3 * index, 3 * index + 3),
    photos[index]!,
    cameras[index % cameras.length]!,
    image,
  ]);
}
