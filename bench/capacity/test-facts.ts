import { gpuCatalogue } from "../../contract/gpus.ts";
import { publishedFacts } from "./published-facts.ts";

/** FP16 peaks of the GPU catalogue. */
export const cataloguePeaks = Object.fromEntries(
  Object.entries(gpuCatalogue).map(([name, { fp16DenseTflops }]) => [name, fp16DenseTflops]),
);

export const testFacts = publishedFacts(cataloguePeaks);
