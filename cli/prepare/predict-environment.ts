import { stationNames } from "../../bench/capacity/model.ts";
import { predictScenario } from "../../bench/capacity/scenario.ts";
import { publishedModel, publishedTimes } from "../../bench/capacity/service-times.ts";
import type { Environment } from "../../contract/environment.ts";
import { gpuSpecOf } from "../../contract/gpus.ts";
import type { Predict } from "../../review/changes/capacity.ts";

/** Common load for all environments: many clients close to the server. */
const load = {
  bandwidthMbps: 10_000,
  roundTripMs: 0.2,
  connections: "kept",
  concurrency: 64,
  imagesPerRequest: 1,
  clientMs: 0,
  jpegBytes: 10_000,
} as const;

const loadText = (content: string) =>
  `${load.concurrency} clients that send ${content} over ${load.bandwidthMbps / 1_000} Gbit/s`;

/** Predicts an environment with the model of `clipstack capacity` and published figures. */
export const predictEnvironment: Predict = ({ gpu, services, models }, gpusOf) => {
  const device = gpu && gpuSpecOf(gpu);
  if (gpu === undefined || device === undefined) {
    return { missing: `no figures of ${gpu?.name ?? "CPUs"} are known` };
  }
  if (gpu.share !== undefined) return { missing: "no figure describes a part of a GPU" };
  const { name } = device;
  const hasTritons = services.some(({ kind }) => kind === "triton");
  const computing = services.filter(
    ({ kind, backend }) =>
      kind === (hasTritons ? "triton" : "embed") && /^(onnxruntime|tensorrt)$/.test(backend),
  );
  const spec = models.find(({ towers }) => towers.image !== undefined);
  if (spec === undefined) return { missing: "no model embeds images" };
  const published = publishedTimes(load.jpegBytes, spec, device);
  // an embed server that computes itself forwards nothing to Triton
  const times = hasTritons ? published : { ...published, ingestMsPerImage: 0 };
  const backend = computing.some(({ backend }) => backend === "tensorrt")
    ? "tensorrt"
    : "onnxruntime";
  // GPUs not used by any service add no throughput
  const gpus = gpusOf(computing.map((service) => service.name)) ?? gpu.count;
  if (gpus === 0 || computing.length === 0) {
    return { missing: "no service computes image embeddings on its GPUs" };
  }
  const { imagesPerSecond, gpusAloneImagesPerSecond, bottleneck } = predictScenario(
    {
      ...load,
      payload: hasTritons ? "fp32" : "jpeg",
      device: { name, usdPerHour: device.price.usdPerHour },
      gpus,
      topology: isPerGpu(gpus, computing) ? "per-gpu" : "instance-group",
      backend,
    },
    times,
  );
  const basis = times.measured(name, backend)
    ? `calibrated by published figures of ${name}`
    : `from the peak of ${name}, for which no figures${spec.name === publishedModel.name ? "" : ` of ${spec.name}`} are published`;
  const idle = gpus < gpu.count ? ` on ${gpus} of ${gpu.count} GPUs` : "";
  const podCount = computing.some(({ workload }) => workload !== undefined)
    ? ", with the maximum number of pods"
    : "";
  return {
    imagesPerSecond,
    gpuImagesPerSecond: gpusAloneImagesPerSecond,
    source: `${basis}: ${backend}${idle}${podCount}, ${loadText(hasTritons ? "float32 tensors to Triton" : "JPEG files of 10 KB to the embed server, which computes itself")}; bottleneck: ${stationNames[bottleneck]} (clipstack capacity)`,
  };
};

function isPerGpu(count: number, tritons: Environment["services"]): boolean {
  // each pod runs one Triton server
  const inPods = tritons.some(({ workload }) => workload !== undefined);
  return count > 1 && (inPods || tritons.filter(({ name }) => /-\d+$/.test(name)).length > 1);
}
