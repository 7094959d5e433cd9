import { z } from "zod";
import { type CatalogueGpu, declaredGpu, gpuCatalogue } from "../contract/gpus.ts";
import {
  firstStronglyTyped,
  type TritonRelease,
  tritonReleases,
} from "../contract/triton-releases.ts";
import { schemaTable } from "../stacks/settings/settings-docs.ts";

/** Page of the documentation with the GPU catalogue. */
export function gpuDocs(): string {
  const rows = Object.entries<CatalogueGpu>(gpuCatalogue).map(([name, gpu]) => {
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
  return `${[
    "# GPUs",
    "",
    "GPU models that the settings accept by name, rendered from `contract/gpus.ts` by `npm run render`. To add a GPU, add its entry there, or",
    "[declare it in the environment](#other-gpus).",
    "",
    "The peak is dense FP16 on tensor cores, for consumer GPUs with FP16 accumulation. Prices are typical prices of one GPU with its share",
    "of the machine, in the month of the date; verify them before you rely on them.",
    "",
    line(columns),
    line(columns.map(() => "---")),
    ...rows.map(line),
    "",
    "## Other GPUs",
    "",
    "`host.gpu` and `nodePool.gpu` also accept the facts of a GPU that the table lacks. Review, `capacity`, `doctor`, synthesis and the names of",
    "TensorRT's engines use them as those of the table:",
    "",
    "```yaml",
    "host:",
    "  gpu: { name: RTX 5000 Ada, memory: 32760, architecture: 8.9, price: 0.65 }",
    "```",
    "",
    ...schemaTable("property", z.toJSONSchema(declaredGpu, { io: "input" })),
    "",
    ...releaseDocs(),
  ].join("\n")}`;
}

const line = (cells: readonly unknown[]) => `| ${cells.join(" | ")} |`;

/** Section with the versions in NVIDIA's Triton images. */
function releaseDocs(): readonly string[] {
  const columns = ["Triton release", "TensorRT", "ONNX Runtime", "CUDA", "Python", "sources"];
  const rows = tritonReleases.map(
    ({ release, tensorrt = "", onnxruntime, cuda, python, sources }) =>
      line([
        release,
        tensorrt.endsWith(".x") ? `${tensorrt} (inferred)` : tensorrt,
        onnxruntime ?? "",
        cuda,
        python ?? "",
        sources.map((source) => sourceLink(source, release)).join(", "),
      ]),
  );
  return [
    "## Triton releases",
    "",
    "Versions in `nvcr.io/nvidia/tritonserver:<release>-py3`, rendered from `contract/triton-releases.ts`: a row for each release with a source.",
    "An inferred version was not read in an image: `dpkg -l | grep nvinfer` in the container shows it.",
    "",
    `From Triton ${firstStronglyTyped} on, TensorRT is version 11, whose networks are strongly typed: the precision is that of the graph, and \`precision_mode\``,
    "has no effect.",
    "",
    line(columns),
    line(columns.map(() => "---")),
    ...rows,
    "",
  ];
}

function sourceLink(source: TritonRelease["sources"][number], release: string): string {
  if (source === "release notes") {
    const page = `rel${release < "23" ? "_" : "-"}${release.replace(".", "-")}.html`;
    return `[${source}](https://docs.nvidia.com/deeplearning/triton-inference-server/release-notes/${page})`;
  }
  if (source === "compatibility table") {
    return `[${source}](https://github.com/triton-inference-server/server/blob/r26.08/docs/introduction/compatibility.md)`;
  }
  return `[${source
    .replace(/^https:\/\/(docs\.|github\.com\/)?/, "")
    .split("/")
    .slice(0, 2)
    .join("/")}](${source})`;
}
