// Types of resample-plan.mjs.
import type { Plan, StoredImage } from "./resample.mjs";

/** @param reduction - 1 where it is left out */
export function planOf(stored: StoredImage, side: number, reduction?: number): Plan;
