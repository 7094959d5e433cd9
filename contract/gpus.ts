import { z } from "zod";
import { integer, text } from "./value-types.ts";

/**
 * GPU catalogue: adding a GPU is one entry in `entries`, whose key is the name in settings. Settings, checks, prices and
 * documentation list the GPUs in this order. If the GPU is in `lab/published/gpu-peaks.json`, delete it there.
 */

/** Facts of the GPUs of one CUDA compute capability. */
interface Generation {
  readonly architecture: string;
  /** First branch of NVIDIA's driver that supports the GPUs (CUDA Toolkit release notes, table of driver versions). */
  readonly driverBranch: number;
  /** First Triton release, `year.month`, whose CUDA supports the GPUs: CUDA 10.0, 11.1, 11.8 and 12.8. */
  readonly tritonRelease: `${number}.${number}`;
}

const computeCapabilities = {
  "7.5": { architecture: "Turing", driverBranch: 410, tritonRelease: "19.01" },
  "8.0": { architecture: "Ampere", driverBranch: 450, tritonRelease: "20.10" },
  "8.6": { architecture: "Ampere", driverBranch: 455, tritonRelease: "20.10" },
  "8.9": { architecture: "Ada Lovelace", driverBranch: 520, tritonRelease: "22.09" },
  "9.0": { architecture: "Hopper", driverBranch: 520, tritonRelease: "22.09" },
  "10.0": { architecture: "Blackwell", driverBranch: 570, tritonRelease: "25.01" },
  "12.0": { architecture: "Blackwell", driverBranch: 570, tritonRelease: "25.01" },
} as const satisfies Record<string, Generation>;

export type PriceSource =
  /** Price list of a cloud provider, on demand, one GPU. */
  | "cloud-on-demand"
  /** Price list of a GPU rental service, on demand, one GPU. */
  | "gpu-rental"
  /** Price paid for the published results that clipstack reproduces. */
  | "published-results";

export interface GpuPrice {
  /** US dollars per hour for one GPU with its share of the machine. */
  readonly usdPerHour: number;
  /** Month of the price, `YYYY-MM`. */
  readonly date: string;
  readonly source: PriceSource;
}

interface GpuEntry {
  /** NVIDIA's name of the GPU. */
  readonly label: string;
  /**
   * Product class. NVIDIA's CUDA compatibility package, with which newer CUDA runs on an older driver, works only on
   * data-centre GPUs.
   */
  readonly class: "data-centre" | "workstation" | "consumer";
  /** Total memory in MiB, as `nvidia-smi --query-gpu=memory.total` reports it with the default ECC mode of the GPU. */
  readonly vramMiB: number;
  /** CUDA compute capability, `major.minor`. A TensorRT engine runs only on GPUs with the capability for which it was built. */
  readonly computeCapability: keyof typeof computeCapabilities;
  /**
   * Peak of the tensor cores with dense FP16 inputs, in 10¹² floating-point operations per second, from NVIDIA's data
   * sheets, whose figures for sparse inputs are twice as high. Accumulation in FP32; in FP16 on consumer GPUs, where it is faster.
   */
  readonly fp16DenseTflops: number;
  readonly price: GpuPrice;
}

export type CatalogueGpu = GpuEntry & Generation;

/** Facts of one GPU model: of the catalogue, or declared in settings. */
export type GpuSpec = Omit<CatalogueGpu, "price"> & {
  /** A declared price has no date. */
  readonly price: { readonly usdPerHour: number; readonly date?: string };
};

const entries = {
  t4: {
    label: "NVIDIA T4",
    class: "data-centre",
    vramMiB: 15_360,
    computeCapability: "7.5",
    fp16DenseTflops: 65,
    price: { usdPerHour: 0.526, date: "2025-06", source: "cloud-on-demand" },
  },
  l4: {
    label: "NVIDIA L4",
    class: "data-centre",
    vramMiB: 23_034,
    computeCapability: "8.9",
    fp16DenseTflops: 121,
    price: { usdPerHour: 0.805, date: "2025-06", source: "cloud-on-demand" },
  },
  a10: {
    label: "NVIDIA A10",
    class: "data-centre",
    vramMiB: 23_028,
    computeCapability: "8.6",
    fp16DenseTflops: 125,
    price: { usdPerHour: 0.75, date: "2025-06", source: "gpu-rental" },
  },
  "rtx-a4000": {
    label: "NVIDIA RTX A4000",
    class: "workstation",
    vramMiB: 16_376,
    computeCapability: "8.6",
    fp16DenseTflops: 76.7,
    price: { usdPerHour: 0.25, date: "2025-06", source: "gpu-rental" },
  },
  "rtx-a6000": {
    label: "NVIDIA RTX A6000",
    class: "workstation",
    vramMiB: 49_140,
    computeCapability: "8.6",
    fp16DenseTflops: 154.8,
    price: { usdPerHour: 0.8, date: "2025-06", source: "gpu-rental" },
  },
  "rtx-4080": {
    label: "NVIDIA GeForce RTX 4080",
    class: "consumer",
    vramMiB: 16_376,
    computeCapability: "8.9",
    fp16DenseTflops: 194.9,
    price: { usdPerHour: 2.0, date: "2026-11", source: "published-results" },
  },
  "rtx-4090": {
    label: "NVIDIA GeForce RTX 4090",
    class: "consumer",
    vramMiB: 24_564,
    computeCapability: "8.9",
    fp16DenseTflops: 330.3,
    price: { usdPerHour: 0.391, date: "2026-02", source: "published-results" },
  },
  "rtx-pro-6000-blackwell": {
    label: "NVIDIA RTX PRO 6000 Blackwell",
    class: "workstation",
    vramMiB: 97_887,
    computeCapability: "12.0",
    fp16DenseTflops: 503.8,
    price: { usdPerHour: 1.79, date: "2025-06", source: "gpu-rental" },
  },
  "a100-sxm4-40gb": {
    label: "NVIDIA A100 SXM4 40 GB",
    class: "data-centre",
    vramMiB: 40_960,
    computeCapability: "8.0",
    fp16DenseTflops: 312,
    price: { usdPerHour: 1.29, date: "2025-06", source: "gpu-rental" },
  },
  "a100-sxm4-80gb": {
    label: "NVIDIA A100 SXM4 80 GB",
    class: "data-centre",
    vramMiB: 81_920,
    computeCapability: "8.0",
    fp16DenseTflops: 312,
    price: { usdPerHour: 1.5, date: "2026-11", source: "published-results" },
  },
  "a100-pcie-40gb": {
    label: "NVIDIA A100 PCIe 40 GB",
    class: "data-centre",
    vramMiB: 40_960,
    computeCapability: "8.0",
    fp16DenseTflops: 312,
    price: { usdPerHour: 1.29, date: "2025-06", source: "gpu-rental" },
  },
  "a100-pcie-80gb": {
    label: "NVIDIA A100 PCIe 80 GB",
    class: "data-centre",
    vramMiB: 81_920,
    computeCapability: "8.0",
    fp16DenseTflops: 312,
    price: { usdPerHour: 1.19, date: "2026-03", source: "gpu-rental" },
  },
  l40s: {
    label: "NVIDIA L40S",
    class: "data-centre",
    vramMiB: 46_068,
    computeCapability: "8.9",
    fp16DenseTflops: 362,
    price: { usdPerHour: 0.79, date: "2026-03", source: "gpu-rental" },
  },
  h100: {
    label: "NVIDIA H100 SXM5 80 GB",
    class: "data-centre",
    vramMiB: 81_559,
    computeCapability: "9.0",
    fp16DenseTflops: 989.4,
    price: { usdPerHour: 2.69, date: "2026-03", source: "gpu-rental" },
  },
  h200: {
    label: "NVIDIA H200 SXM 141 GB",
    class: "data-centre",
    vramMiB: 143_771,
    computeCapability: "9.0",
    fp16DenseTflops: 989.4,
    price: { usdPerHour: 3.59, date: "2026-03", source: "gpu-rental" },
  },
  b200: {
    label: "NVIDIA B200 SXM 180 GB",
    class: "data-centre",
    vramMiB: 183_359,
    computeCapability: "10.0",
    fp16DenseTflops: 2250,
    price: { usdPerHour: 5.98, date: "2026-03", source: "gpu-rental" },
  },
} as const satisfies Record<string, GpuEntry>;

export type GpuName = keyof typeof entries;

/** Keys of the catalogue, which settings use as names. */
export const gpuNames = Object.keys(entries) as [GpuName, ...GpuName[]];

/** Facts of every GPU by its name in the settings. */
export const gpuCatalogue = Object.fromEntries(
  Object.entries<GpuEntry>(entries).map(([name, entry]) => [
    name,
    { ...computeCapabilities[entry.computeCapability], ...entry },
  ]),
) as unknown as Readonly<Record<GpuName, CatalogueGpu>>;

const capabilities = Object.keys(computeCapabilities) as (keyof typeof computeCapabilities)[];
const classes = ["data-centre", "workstation", "consumer"] as const;

/** GPU that the catalogue lacks, as settings declare it. */
export const declaredGpu = z.strictObject({
  name: text("a name of letters, digits, spaces and . _ -", /^[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}$/)
    .refine((name) => !Object.hasOwn(entries, name), {
      error: "must not be a name of the GPU catalogue: set gpu to the name alone",
    })
    .describe("Name in reviews, reports and predictions."),
  memory: integer(2_048, 4_194_304).describe(
    "Memory in MiB: `nvidia-smi --query-gpu=memory.total`.",
  ),
  architecture: z
    // YAML reads 9.0 as a number
    .literal([...capabilities, ...capabilities.map(Number)], {
      error: `must be a CUDA compute capability: ${capabilities.join(", ")}`,
    })
    .transform((value) => Number(value).toFixed(1) as keyof typeof computeCapabilities)
    .describe("CUDA compute capability: `nvidia-smi --query-gpu=compute_cap`."),
  price: z
    .number({ error: "must be a number" })
    .min(0, "must be 0 or more")
    .describe("US dollars per hour for one GPU."),
  fp16Tflops: z
    .number({ error: "must be a number" })
    .positive("must be above 0")
    .optional()
    .describe(
      "Dense FP16 peak in TFLOPS. Default: the lowest of the catalogue's GPUs with the same architecture.",
    ),
  class: z
    .enum(classes)
    .default("workstation")
    .describe("On a data-centre GPU, the images may run on an older driver."),
});

/** GPU of settings and props: a name of the catalogue, or the facts of another GPU. */
export const gpuModel = z.union([z.enum(gpuNames), declaredGpu]);
export type GpuModel = z.input<typeof gpuModel>;

/** Description of {@link gpuModel} in settings. */
export const gpuModelText =
  "a key of the GPU catalogue, or the facts of another GPU (docs/gpus.md#other-gpus)";

/** Name and facts of a GPU of settings or props. */
export function gpuSpec(model: GpuModel): GpuSpec & { readonly name: string } {
  if (typeof model === "string") return { name: model, ...gpuCatalogue[model] };
  const { name, memory, architecture, price, fp16Tflops, class: of } = declaredGpu.parse(model);
  const peaks = Object.values<CatalogueGpu>(gpuCatalogue)
    .filter(({ computeCapability }) => computeCapability === architecture)
    .map(({ fp16DenseTflops }) => fp16DenseTflops);
  return {
    ...computeCapabilities[architecture],
    name,
    label: name,
    class: of,
    vramMiB: memory,
    computeCapability: architecture,
    fp16DenseTflops: fp16Tflops ?? Math.min(...peaks),
    price: { usdPerHour: price },
  };
}

/** Facts of a declared GPU in the environment output, besides its name, memory and price. */
export const declaredFacts = z.strictObject({
  computeCapability: z.enum(capabilities),
  class: z.enum(classes),
  fp16DenseTflops: z.number().positive(),
});

/** Facts of a GPU in the environment output; undefined if an old output names a GPU that the catalogue lacks. */
export function gpuSpecOf(gpu: {
  readonly name: string;
  readonly vramMiB: number;
  readonly count: number;
  readonly usdPerHour: number;
  readonly declared?: z.infer<typeof declaredFacts>;
}): (GpuSpec & { readonly name: string }) | undefined {
  const { name, vramMiB, declared } = gpu;
  if (declared !== undefined) {
    const price = { usdPerHour: gpu.usdPerHour / gpu.count };
    const generation = computeCapabilities[declared.computeCapability];
    return { ...generation, ...declared, name, label: name, vramMiB, price };
  }
  const known = gpuNames.find((candidate) => candidate === name);
  return known && gpuSpec(known);
}

/** Maximum number of GPUs of a host, a node or a pod. */
export const maxGpus = 16;

/** Name under which NVIDIA's device plugin offers whole GPUs. */
export const gpuResource = "nvidia.com/gpu";

/** Memory of a MIG device in MiB, from its profile or resource name: `1g.10gb`, `nvidia.com/mig-1g.10gb`. */
export function migMemoryMiB(profile: string): number | undefined {
  const gigabytes = /(?:^|mig-)\d+g\.(\d+)gb/.exec(profile)?.[1];
  return gigabytes === undefined ? undefined : Math.floor((Number(gigabytes) * 1e9) / 2 ** 20);
}
