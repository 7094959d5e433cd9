/** Facts about GPUs, once: memory, architecture, peak arithmetic and a typical price. */

/** Where a price was seen. */
export type PriceSource =
  /** Price list of a cloud provider, on demand, one GPU. */
  | "cloud-on-demand"
  /** Price list of a GPU rental service, on demand, one GPU. */
  | "gpu-rental"
  /** Paid for the runs of published results that clipstack reproduces. */
  | "published-results";

export interface GpuPrice {
  /** US dollars an hour for one GPU with its share of the machine. */
  readonly usdPerHour: number;
  /** Month in which the price was seen, `YYYY-MM`. Prices move: look again before you rely on one. */
  readonly date: string;
  readonly source: PriceSource;
}

export interface GpuSpec {
  /** As NVIDIA writes it. */
  readonly label: string;
  /** Memory as `nvidia-smi` reports it (with ECC where that is the default), in MiB. */
  readonly vramMiB: number;
  readonly architecture: "Turing" | "Ampere" | "Ada Lovelace" | "Hopper" | "Blackwell";
  /** CUDA compute capability, `major.minor`. A TensorRT engine runs on the one it was built for. */
  readonly computeCapability: `${number}.${number}`;
  /**
   * Peak of the tensor cores: FP16 inputs, dense, in 10¹² floating-point operations a second, from NVIDIA's data
   * sheets. GeForce cards: with FP16 accumulation, which is what they reach at most.
   */
  readonly fp16DenseTflops: number;
  /** Typical price. A bench record keeps it with its date. */
  readonly price: GpuPrice;
}

export const gpuCatalogue = {
  t4: {
    label: "NVIDIA T4",
    vramMiB: 15_360,
    architecture: "Turing",
    computeCapability: "7.5",
    fp16DenseTflops: 65,
    price: { usdPerHour: 0.526, date: "2025-06", source: "cloud-on-demand" },
  },
  l4: {
    label: "NVIDIA L4",
    vramMiB: 23_034,
    architecture: "Ada Lovelace",
    computeCapability: "8.9",
    fp16DenseTflops: 121,
    price: { usdPerHour: 0.805, date: "2025-06", source: "cloud-on-demand" },
  },
  a10: {
    label: "NVIDIA A10",
    vramMiB: 23_028,
    architecture: "Ampere",
    computeCapability: "8.6",
    fp16DenseTflops: 125,
    price: { usdPerHour: 0.75, date: "2025-06", source: "gpu-rental" },
  },
  "rtx-a4000": {
    label: "NVIDIA RTX A4000",
    vramMiB: 16_376,
    architecture: "Ampere",
    computeCapability: "8.6",
    fp16DenseTflops: 76.7,
    price: { usdPerHour: 0.25, date: "2025-06", source: "gpu-rental" },
  },
  "rtx-a6000": {
    label: "NVIDIA RTX A6000",
    vramMiB: 49_140,
    architecture: "Ampere",
    computeCapability: "8.6",
    fp16DenseTflops: 154.8,
    price: { usdPerHour: 0.8, date: "2025-06", source: "gpu-rental" },
  },
  "rtx-4080": {
    label: "NVIDIA GeForce RTX 4080",
    vramMiB: 16_376,
    architecture: "Ada Lovelace",
    computeCapability: "8.9",
    fp16DenseTflops: 194.9,
    price: { usdPerHour: 2.0, date: "2026-11", source: "published-results" },
  },
  "rtx-4090": {
    label: "NVIDIA GeForce RTX 4090",
    vramMiB: 24_564,
    architecture: "Ada Lovelace",
    computeCapability: "8.9",
    fp16DenseTflops: 330.3,
    price: { usdPerHour: 0.391, date: "2026-02", source: "published-results" },
  },
  "rtx-pro-6000-blackwell": {
    label: "NVIDIA RTX PRO 6000 Blackwell",
    vramMiB: 97_887,
    architecture: "Blackwell",
    computeCapability: "12.0",
    fp16DenseTflops: 503.8,
    price: { usdPerHour: 1.79, date: "2025-06", source: "gpu-rental" },
  },
  "a100-sxm4-40gb": {
    label: "NVIDIA A100 SXM4 40 GB",
    vramMiB: 40_960,
    architecture: "Ampere",
    computeCapability: "8.0",
    fp16DenseTflops: 312,
    price: { usdPerHour: 1.29, date: "2025-06", source: "gpu-rental" },
  },
  "a100-sxm4-80gb": {
    label: "NVIDIA A100 SXM4 80 GB",
    vramMiB: 81_920,
    architecture: "Ampere",
    computeCapability: "8.0",
    fp16DenseTflops: 312,
    price: { usdPerHour: 1.5, date: "2026-11", source: "published-results" },
  },
  "a100-pcie-40gb": {
    label: "NVIDIA A100 PCIe 40 GB",
    vramMiB: 40_960,
    architecture: "Ampere",
    computeCapability: "8.0",
    fp16DenseTflops: 312,
    price: { usdPerHour: 1.29, date: "2025-06", source: "gpu-rental" },
  },
  "a100-pcie-80gb": {
    label: "NVIDIA A100 PCIe 80 GB",
    vramMiB: 81_920,
    architecture: "Ampere",
    computeCapability: "8.0",
    fp16DenseTflops: 312,
    price: { usdPerHour: 1.19, date: "2026-03", source: "gpu-rental" },
  },
  l40s: {
    label: "NVIDIA L40S",
    vramMiB: 46_068,
    architecture: "Ada Lovelace",
    computeCapability: "8.9",
    fp16DenseTflops: 362,
    price: { usdPerHour: 0.79, date: "2026-03", source: "gpu-rental" },
  },
  h100: {
    label: "NVIDIA H100 SXM5 80 GB",
    vramMiB: 81_559,
    architecture: "Hopper",
    computeCapability: "9.0",
    fp16DenseTflops: 989.4,
    price: { usdPerHour: 2.69, date: "2026-03", source: "gpu-rental" },
  },
  h200: {
    label: "NVIDIA H200 SXM 141 GB",
    vramMiB: 143_771,
    architecture: "Hopper",
    computeCapability: "9.0",
    fp16DenseTflops: 989.4,
    price: { usdPerHour: 3.59, date: "2026-03", source: "gpu-rental" },
  },
  b200: {
    label: "NVIDIA B200 SXM 180 GB",
    vramMiB: 183_359,
    architecture: "Blackwell",
    computeCapability: "10.0",
    fp16DenseTflops: 2250,
    price: { usdPerHour: 5.98, date: "2026-03", source: "gpu-rental" },
  },
} as const satisfies Record<string, GpuSpec>;

/** Key of the catalogue. */
export type GpuName = keyof typeof gpuCatalogue;

export const gpuNames = Object.keys(gpuCatalogue) as [GpuName, ...GpuName[]];
