import { type GpuSpec, gpuCatalogue } from "../contract/gpus.ts";

/** Page of the documentation with the GPU catalogue. */
export function gpuDocs(): string {
  const rows = Object.entries<GpuSpec>(gpuCatalogue).map(([name, gpu]) => {
    const { usdPerHour, date, source } = gpu.price;
    return [
      `\`${name}\``,
      gpu.label,
      gpu.class,
      `${gpu.architecture} (${gpu.computeCapability})`,
      gpu.vramMiB,
      gpu.fp16DenseTflops,
      gpu.driverBranch,
      gpu.tritonRelease,
      `${usdPerHour} $ (${date}, ${source})`,
    ];
  });
  const columns = [
    "`host.gpu`, `nodePool.gpu`",
    "GPU",
    "class",
    "architecture (compute capability)",
    "memory (MiB)",
    "FP16 peak (TFLOPS)",
    "first driver branch",
    "first Triton release",
    "price per hour",
  ];
  const line = (cells: readonly unknown[]) => `| ${cells.join(" | ")} |`;
  return `${[
    "# GPUs",
    "",
    "GPU models that the settings accept, rendered from `contract/gpus.ts` by `npm run render`. To add a GPU, add its entry there.",
    "",
    "The peak is dense FP16 on tensor cores, for consumer GPUs with FP16 accumulation. Prices are typical prices of one GPU with its share",
    "of the machine, in the month of the date; verify them before you rely on them.",
    "",
    line(columns),
    line(columns.map(() => "---")),
    ...rows.map(line),
    "",
  ].join("\n")}`;
}
