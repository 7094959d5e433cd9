import type { Artefact } from "../../artefact/artefact.ts";
import type { Workload } from "../../artefact/workload.ts";
import { requiredDriver } from "../../constructs/docker/drivers.ts";
import { deployedConfigName } from "../../contract/model-config.ts";
import type { ChangedConfig, LaunchVolume } from "./launch-spec-types.ts";
import type { WeightsMount } from "./model-files.ts";

/** CUDA major version of ONNX Runtime in the embed image (Dockerfile.gpu). */
const providerCuda = 12;

/** Note if Triton's image has another CUDA than ONNX Runtime of the embed server requires. */
export function cudaNotes(
  embed: Workload | undefined,
  server: string | undefined,
  tritonImage: string | undefined,
): readonly string[] {
  if (embed?.env.EXECUTION_PROVIDER !== "cuda" || server !== "tritonserver") return [];
  const cuda = tritonImage === undefined ? undefined : requiredDriver(tritonImage)?.cuda;
  if (cuda === providerCuda) return [];
  return [
    `the embed server requires CUDA ${providerCuda}, and ${tritonImage ?? "the Triton image"} has ${cuda === undefined ? "its own" : `CUDA ${cuda}`}: it may fail to start because of missing libraries; set embed.backend: triton to run the model in Triton`,
  ];
}

export function engineNote({ source }: LaunchVolume): string {
  return `TensorRT engines are kept on the volume ${source} and contain the weights: remove the volume before using other weights ('docker volume rm ${source}')`;
}

/** Notes about weights, secrets, ports and model configurations. */
export function notesOf(
  { workloads }: Artefact,
  weights: readonly WeightsMount[],
  secrets: readonly string[],
  changed: readonly ChangedConfig[],
  mounted: boolean,
): readonly string[] {
  const open = workloads.some(({ service }) => service.authorization !== undefined);
  const anonymous = workloads.some(({ env }) => env.ALLOW_ANONYMOUS === "true");
  return [
    ...[...new Set(weights.map(({ source }) => source))].map(
      (folder) =>
        `the weights are in the folder ${folder} of the host; if the host has no such folder, set weights: image and rebuild`,
    ),
    ...(secrets.length > 0 ? [`${secrets.join(", ")} must be set in the shell of docker run`] : []),
    ...(!open && anonymous
      ? [
          "every port is reachable from the host only, and the embed server requires no key: publish no port on a marketplace, and use 'ssh -L'; for a public port set embed.expose: all-interfaces, which requires a key",
        ]
      : []),
    ...changed.map(({ model }) =>
      mounted
        ? `${model}: configs/${deployedConfigName}.pbtxt of the settings is mounted over that of the image`
        : `${model}: the settings change its configuration, but the image contains the repository's: --configs <folder> writes configs/${deployedConfigName}.pbtxt and mounts it`,
    ),
  ];
}
