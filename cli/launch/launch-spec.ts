import { basename, dirname, join, posix, resolve } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import type { ContainerBlock } from "../../artefact/container-workload.ts";
import type { DeclaredContainer } from "../../artefact/declared-container.ts";
import type { Workload } from "../../artefact/workload.ts";
import { engineCacheMount } from "../../contract/model-config.ts";
import { modelsArgument } from "../../contract/server/model-list.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import { packageVersion } from "../../model-tools/files/folders.ts";
import { embedEnv, gpuEnv, runOptions } from "./container-options.ts";
import { buildCommand, pulledImages, tritonBases } from "./launch-images.ts";
import { cudaNotes, engineNote, notesOf } from "./launch-notes.ts";
import type { ChangedConfig, LaunchSpec, LaunchVolume } from "./launch-spec-types.ts";
import { changedConfigs, weightsMounts, weightsUrls } from "./model-files.ts";
import { requireOneContainer, sharedValue } from "./one-container.ts";
import { portsOf } from "./service-ports.ts";

export interface LaunchOptions {
  /**
   * Name of the all-in-one image.
   *
   * @default clipstack/all-in-one:0.1.0, with `-emulator` for the Triton emulator
   */
  readonly image?: string;
  /** Folder for model configurations that differ from those in the image. */
  readonly configs?: string;
}

/**
 * Launch specification of a synthesized environment.
 *
 * @param json - Text of `cdk.tf.json`.
 */
export function launchSpec(
  artefact: Artefact,
  json: string,
  options: LaunchOptions = {},
): { readonly spec: LaunchSpec; readonly changed: readonly ChangedConfig[] } {
  const { environment, workloads } = artefact;
  const containers = requireOneContainer(artefact);
  const tritons = workloads.filter(({ service }) => service.kind === "triton");
  const embed = workloads.find(({ service }) => service.kind === "embed");
  const server = sharedValue(environment.name, tritons, "server", (it) => it.service.server);
  const bases = tritonBases(json);
  const tritonImage = sharedValue(environment.name, tritons, "image", (workload) =>
    bases.get(containers.get(workload)?.image ?? ""),
  );
  const weights = weightsMounts(artefact, dirname(resolve(artefact.file)));
  const urls = weightsUrls(artefact);
  const downloads = urls.map((file) =>
    posix.join(modelRepositoryMount, dirname(file.split("=")[0] ?? "")),
  );
  const secrets = embed?.env.API_KEY === undefined ? [] : ["API_KEY"];
  const changed = changedConfigs(tritons, artefact);
  const image =
    options.image ??
    `clipstack/all-in-one:${packageVersion()}${server === "emulator" ? "-emulator" : ""}`;
  const declared = [...containers.values()].map((block) => block.declared);
  const engines = enginesVolume(artefact);
  const configs = configVolumes(changed, options.configs);
  const models = modelsArgument(environment.models);
  const gpu = gpuOf(artefact, declared);
  const services = workloads.map(({ service }) => service.name);
  return {
    changed,
    spec: {
      schema: 1,
      environment: environment.name,
      image,
      build: buildCommand({
        image,
        server,
        tritonImage,
        embedImage: embedImageOf(embed, containers, json),
        hasWeights: weights.length + urls.length === 0,
        hasGpu: gpu !== undefined,
        models,
      }),
      services,
      env: {
        SERVICES: services.join(","),
        ...(tritons.length > 0 && { TRITON_MODELS: models }),
        ...(embed !== undefined && embedEnv(embed, tritons)),
        ...(urls.length === 0 ? {} : { WEIGHTS_URLS: urls.join(" ") }),
        ...gpuEnv(declared),
      },
      secrets,
      ports: workloads.flatMap((workload) => portsOf(workload, containers.get(workload)?.declared)),
      gpu,
      volumes: [
        ...engines,
        ...[...new Set(downloads)].map((target) => ({
          source: `${environment.name}-weights-${basename(dirname(target))}`,
          target,
          readOnly: false,
        })),
        ...weights.map((mount) => ({ ...mount, readOnly: true })),
        ...configs,
      ],
      options: runOptions(declared),
      notes: [
        ...cudaNotes(embed, server, tritonImage),
        ...engines.map(engineNote),
        ...notesOf(artefact, weights, secrets, changed, configs.length > 0),
      ],
    },
  };
}

function gpuOf(
  { environment: { gpu } }: Artefact,
  containers: readonly DeclaredContainer[],
): LaunchSpec["gpu"] {
  const request = containers.find(({ gpus }) => gpus !== undefined)?.gpus;
  if (request === undefined || gpu === undefined) return undefined;
  return { request, name: gpu.name, vramMiB: gpu.vramMiB };
}

function embedImageOf(
  embed: Workload | undefined,
  containers: ReadonlyMap<Workload, ContainerBlock>,
  json: string,
): string {
  const pulled =
    embed === undefined ? undefined : pulledImages(json).get(containers.get(embed)?.image ?? "");
  return pulled ?? `clipstack/embed:${embed?.env.EXECUTION_PROVIDER === "cuda" ? "gpu" : "cpu"}`;
}

/** Volume of TensorRT's engines; empty if no service keeps engines. */
function enginesVolume({ environment, workloads }: Artefact): readonly LaunchVolume[] {
  const keepsEngines = workloads.some(({ volumes }) =>
    volumes.some(({ containerPath }) => containerPath === engineCacheMount),
  );
  return keepsEngines
    ? [{ source: `${environment.name}-engines`, target: engineCacheMount, readOnly: false }]
    : [];
}

function configVolumes(
  changed: readonly ChangedConfig[],
  folder: string | undefined,
): readonly LaunchVolume[] {
  if (folder === undefined) return [];
  return changed.map(({ model }) => ({
    source: join(resolve(folder), model),
    target: `${modelRepositoryMount}/${model}/configs`,
    readOnly: true,
  }));
}
