import { stationNames } from "../../bench/capacity/model.ts";
import { publishedModel } from "../../bench/capacity/published.ts";
import { factsOf, publishedFacts, publishedTimes } from "../../bench/capacity/published-facts.ts";
import type { PublishedFacts } from "../../bench/capacity/published-parameters.ts";
import { predictScenario } from "../../bench/capacity/scenario.ts";
import type { Environment } from "../../contract/environment.ts";
import { gpuSpecOf } from "../../contract/gpus.ts";
import type { Predict } from "../../review/changes/capacity.ts";

/** Common load for all environments: many clients close to the server. */
const load = {
  payload: "fp32",
  bandwidthMbps: 10_000,
  roundTripMs: 0.2,
  connections: "kept",
  concurrency: 64,
  imagesPerRequest: 1,
  clientMs: 0,
  jpegBytes: 10_000,
} as const;

const loadText = `${load.concurrency} clients that send float32 tensors to Triton over ${load.bandwidthMbps / 1_000} Gbit/s`;

/** Predicts an environment with the model of `clipstack capacity` and published figures; `undefined` without a GPU. */
export function environmentPredictor(): Predict {
  // the model is calibrated on first use
  let facts: PublishedFacts | undefined;
  return ({ gpu, services, models }, gpusOf) => {
    const device = gpu && gpuSpecOf(gpu);
    // no figure describes a part of a GPU
    if (gpu === undefined || device === undefined || gpu.share !== undefined) return undefined;
    const { name } = device;
    const tritons = services.filter(({ kind }) => kind === "triton");
    if (tritons.length === 0) return undefined;
    const spec = models.find(({ towers }) => towers.image !== undefined);
    if (spec === undefined) return undefined;
    facts ??= publishedFacts();
    const times = publishedTimes(factsOf(facts, device), load.jpegBytes, spec);
    const backend = tritons.some(({ backend }) => backend === "tensorrt")
      ? "tensorrt"
      : "onnxruntime";
    const computing = tritons.filter(
      ({ backend }) => backend === "onnxruntime" || backend === "tensorrt",
    );
    // GPUs not used by any service add no throughput
    const gpus = gpusOf(computing.map((service) => service.name)) ?? gpu.count;
    if (gpus === 0) return undefined;
    const { imagesPerSecond, gpusAloneImagesPerSecond, bottleneck } = predictScenario(
      {
        ...load,
        device: { name },
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
    const podCount = tritons.some(({ workload }) => workload !== undefined)
      ? ", with the maximum number of pods"
      : "";
    return {
      imagesPerSecond,
      gpuImagesPerSecond: gpusAloneImagesPerSecond,
      source: `${basis}: ${backend}${idle}${podCount}, ${loadText}; bottleneck: ${stationNames[bottleneck]} (clipstack capacity)`,
    };
  };
}

function isPerGpu(count: number, tritons: Environment["services"]): boolean {
  // each pod runs one Triton
  const inPods = tritons.some(({ workload }) => workload !== undefined);
  return count > 1 && (inPods || tritons.filter(({ name }) => /-\d+$/.test(name)).length > 1);
}
