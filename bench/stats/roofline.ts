import { gigaFlopsPerItem } from "../../contract/model-shapes.ts";
import type { ImageTower, TextTower } from "../../contract/model-spec.ts";
import type { LoadPoint } from "../record/bench-record.ts";

/** GPUs with their data sheet figures. */
export interface Device {
  /** Key of the GPU catalogue. */
  readonly name: string;
  readonly count: number;
  /** Peak of one, in 10¹² floating-point operations per second: FP16, dense. */
  readonly fp16DenseTflops: number;
}

/** Images or texts per second that no program can exceed: every operation of the tower at the device's peak. */
export function ceilingImagesPerSecond(
  { count, fp16DenseTflops }: Device,
  tower: ImageTower | TextTower,
): number {
  return (count * fp16DenseTflops * 1_000) / gigaFlopsPerItem(tower);
}

/**
 * Load points above the device's peak performance. Such a rate is a measurement error: another server responded or the
 * model was not executed for every image.
 *
 * @param devices - By environment; environments without an entry are not checked.
 * @returns One sentence per load point.
 */
export function aboveCeiling(
  loadPoints: readonly Pick<LoadPoint, "id" | "environment" | "conditions" | "imagesPerSecond">[],
  devices: ReadonlyMap<string, Device>,
  tower: ImageTower | TextTower,
): readonly string[] {
  return loadPoints.flatMap(({ id, environment, conditions, imagesPerSecond }) => {
    const device = devices.get(environment);
    if (device === undefined) return [];
    const { name, fp16DenseTflops } = device;
    const count = conditions.gpus ?? device.count;
    const ceiling = ceilingImagesPerSecond({ ...device, count }, tower);
    if (imagesPerSecond <= ceiling) return [];
    return [
      `${id}: ${Math.round(imagesPerSecond)} images/s are more than ${count} × ${name} can compute, at most ${Math.round(ceiling)} (${fp16DenseTflops} TFLOPS each, ${gigaFlopsPerItem(tower).toFixed(1)} GFLOP per image): the measurement is wrong`,
    ];
  });
}
