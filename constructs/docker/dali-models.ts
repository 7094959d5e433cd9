import { dirname } from "node:path";
import { Construct } from "constructs";
import type { ContainerVolumes } from "#providers/docker/lib/container/index.js";
import { Volume } from "#providers/docker/lib/volume/index.js";
import type { backendKinds } from "../../contract/deployed-model-config.ts";
import { daliFiles, gpuLayout, modelConfig } from "../../contract/model-config.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { printModelConfig } from "../../contract/print-model-config.ts";
import { daliPipelinePath } from "../../contract/repository-files.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import { type DaliKind, type daliModels, tritonModelName } from "../../contract/triton-models.ts";
import { type ServedTower, servedTowers, towerSuffix } from "../models/served-towers.ts";
import { TerraformLocal } from "../terraform/cdktf.ts";
import { expression } from "../terraform/expression.ts";
import { ModelConfiguration, type ModelConfigurationProps } from "./model-configuration.ts";
import type { ModelWeights } from "./model-weights.ts";
import { OneShot } from "./one-shot.ts";

/** Decoder of JPEG files in a Triton server. */
export type JpegDecoder = "none" | "dali";

/** Ensemble that accepts JPEG files in a Triton server with a backend; undefined without a decoder. */
export function jpegKind(
  backend: keyof typeof backendKinds,
  decoder: JpegDecoder = "none",
): keyof typeof daliModels | undefined {
  if (decoder === "none") return undefined;
  return backend === "tensorrt" ? "dali-trt" : "dali";
}

export interface DaliModelsProps
  extends Pick<ModelConfigurationProps, "host" | "tools" | "reload"> {
  /** Name of the Triton server's container, which starts the names of its objects. */
  readonly server: string;
  /** Name of the Triton server in the stack. */
  readonly service: string;
  /** Models with the pipelines in their repository, which `clipstack model pipeline` writes. */
  readonly weights: ModelWeights;
  /** Number of GPUs; without them, decoder and resize run on the CPU. */
  readonly gpus: number;
  /** Ensemble that returns embeddings. */
  readonly ensemble: keyof typeof daliModels;
}

const mountInTools = "/pipeline";

/** Models with which a Triton server decodes JPEG files: a DALI pipeline and an ensemble for each model with an image tower. */
export class DaliModels extends Construct {
  /** Folders in the model repository and names in requests. */
  readonly names: readonly string[];
  readonly configurations: readonly ModelConfiguration[];
  /** Mounts of the pipelines in the Triton container. */
  readonly mounts: readonly ContainerVolumes[];

  constructor(scope: Construct, id: string, props: DaliModelsProps) {
    super(scope, id);

    const towers = servedTowers(props.weights.models).filter(
      ({ modality }) => modality === "image",
    );
    this.names = towers.flatMap(({ spec }) =>
      kindsOf(props).map((modelKind) => tritonModelName(spec, modelKind)),
    );
    this.configurations = towers.flatMap((tower) =>
      kindsOf(props).map((modelKind) => this.#addConfiguration(tower, modelKind, props)),
    );
    this.mounts = towers.flatMap((tower) => {
      const mount = this.#addPipeline(tower, props);
      // Triton requires a version folder of an ensemble too, and ignores its content
      return kindsOf(props).map((modelKind) => ({
        ...mount,
        containerPath: `${modelRepositoryMount}/${tritonModelName(tower.spec, modelKind)}/1`,
        readOnly: true,
      }));
    });
  }

  #addConfiguration(
    tower: ServedTower,
    modelKind: DaliKind,
    { server, service, gpus, ...props }: DaliModelsProps,
  ): ModelConfiguration {
    const suffix = `${modelKind === "dali-preprocess" ? "-preprocess" : ""}${towerSuffix(tower)}`;
    const config = modelConfig(tower.spec, modelKind, gpuLayout(gpus));
    return new ModelConfiguration(this, `configuration${suffix}`, {
      ...props,
      volume: `${server}-config-dali${suffix}`,
      service: `${service}-dali${suffix}`,
      model: config.name,
      text: printModelConfig(config),
      versions: [],
    });
  }

  /** Adds a volume with the pipeline of a model, verified by checksum. @returns its mount without a path */
  #addPipeline(
    tower: ServedTower,
    { host, tools, server, service, weights, gpus }: DaliModelsProps,
  ): Pick<ContainerVolumes, "hostPath" | "volumeName"> {
    const device = gpus > 0 ? "gpu" : "cpu";
    const path = `${weights.modelRepository}/${daliPipelinePath(tower.spec, device)}`;
    const isOnHost = weights.source === "host-path";
    const what = `the DALI pipeline of ${tower.spec.name}`;
    host.require({ files: [{ path, on: isOnHost ? "host" : "here", what }] });
    if (isOnHost) return { hostPath: host.path(dirname(path)) };

    const suffix = towerSuffix(tower);
    const source = host.sourcePath(path);
    const id = `pipeline${suffix}`;
    const hash = expression(`try(filesha256("${source}"), "missing")`);
    const local = new TerraformLocal(this, `${id}-sha256`, hash);
    const checksum = `local.${local.friendlyUniqueId}`;
    const sha256 = expression(checksum);
    const model = tower.spec.name === defaultModel.name ? "" : ` ${tower.spec.name}`;
    const volume = new Volume(this, id, {
      provider: host.provider,
      name: `${server}-dali${suffix}-${expression(`substr(${checksum}, 0, 12)`)}`,
      lifecycle: {
        createBeforeDestroy: true,
        precondition: [
          {
            condition: expression(`${checksum} != "missing"`),
            errorMessage: `There is no DALI pipeline at ${path}: 'npx clipstack model pipeline${model}' writes it.`,
          },
        ],
      },
    });
    const file = daliFiles[device];
    new OneShot(this, `${id}-check`, {
      host,
      image: tools,
      service: `${service}-dali${suffix}`,
      run: {
        command: ["check-weights", "--folder", mountInTools, "--file", file, "--sha256", sha256],
        networkMode: "none",
        volumes: [{ volumeName: volume.name, containerPath: mountInTools }],
        upload: [{ file: `${mountInTools}/${file}`, source, sourceHash: sha256 }],
      },
      versions: [sha256],
    });
    return { volumeName: volume.name };
  }
}

/** Models of one tower, each after those that it consists of. */
function kindsOf({ ensemble }: Pick<DaliModelsProps, "ensemble">): readonly DaliKind[] {
  return ["dali-preprocess", ensemble];
}
