import { createHash } from "node:crypto";
import { Construct } from "constructs";
import type { Container, ContainerVolumes } from "#providers/docker/lib/container/index.js";
import { Volume } from "#providers/docker/lib/volume/index.js";
import { deployedConfigName } from "../../contract/model-config.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import { modelControlKeyVariable } from "../../contract/triton-flags.ts";
import { expression } from "../terraform/expression.ts";
import type { GpuHost } from "./gpu-host.ts";
import { OneShot } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";

export interface ModelConfigurationProps {
  readonly host: GpuHost;
  /** Embed image, which writes the configuration to the volume. */
  readonly tools: ServerImage;
  readonly service: string;
  /** Name of the volume. */
  readonly volume: string;
  /** Folder of the model in the repository. */
  readonly model: string;
  /** Text of `config.pbtxt`. Terraform expressions in it are known at plan time. */
  readonly text: string;
  /**
   * Weights of version 1, whose fingerprint the configuration gets when it is applied.
   *
   * @default - no fingerprint, because the images contain the weights
   */
  readonly towerWeights?: {
    /** Folder of version 1. */
    readonly mount: Pick<ContainerVolumes, "hostPath" | "volumeName">;
    /** Container that fills the folder. @default - the folder exists */
    readonly filledBy?: Container | undefined;
    /** `preprocessingSha256` of the tower. */
    readonly preprocessing: string;
    /** Volume with further versions. @default - only version 1 */
    readonly versions?: string | undefined;
  };
  /** Terraform expressions in `text`. */
  readonly versions: readonly string[];
  /**
   * Model control API through which a running Triton loads the configuration.
   *
   * @default - Triton reads the configuration when it starts
   */
  readonly reload?: {
    /** URL of Triton in the Docker network of the host. */
    readonly url: string;
    readonly timeoutSeconds: number;
    /**
     * Key of the API.
     *
     * @default - the API requires no key
     */
    readonly key?: string;
    /** Values that replace the container when they change. A container started with other values is not reloaded. */
    readonly startedWith: readonly string[];
  };
}

const mountInTools = "/configs";
const weightsInTools = "/weights";
const versionsInTools = "/versions";
const uploaded = "/model-config.pbtxt";

/** Configuration of a model on a volume that Triton reads. */
export class ModelConfiguration extends Construct {
  /** Hash of the text. */
  readonly version: string;
  /** Mount of the volume in the Triton container. */
  readonly mount: ContainerVolumes;

  constructor(scope: Construct, id: string, props: ModelConfigurationProps) {
    super(scope, id);

    const { host, tools, service, model, text, versions, reload, towerWeights: weights } = props;
    const hash = createHash("sha256").update(text).digest("hex").slice(0, 12);
    this.version =
      versions.length === 0
        ? hash
        : expression(`substr(sha256("${[hash, ...versions].join(" ")}"), 0, 12)`);
    const volume = new Volume(this, "volume", {
      name: props.volume,
      provider: host.provider,
    });
    const apply = new OneShot(this, "apply", {
      host,
      image: tools,
      service: `${service}-config`,
      run: {
        command: [
          "apply-config",
          ...["--folder", mountInTools],
          ...["--file", uploaded],
          ...["--name", deployedConfigName],
          ...["--model", model],
          ...(reload === undefined ? [] : reloadArguments(reload)),
          ...(weights === undefined ? [] : weightsArguments(weights)),
        ],
        ...(reload === undefined
          ? { networkMode: "none" }
          : { networksAdvanced: [{ name: host.network.name }] }),
        ...(reload?.key !== undefined && { env: [`${modelControlKeyVariable}=${reload.key}`] }),
        volumes: [
          { volumeName: volume.name, containerPath: mountInTools },
          ...(weights === undefined
            ? []
            : [{ ...weights.mount, containerPath: weightsInTools, readOnly: true }]),
          ...(weights?.versions === undefined
            ? []
            : [{ volumeName: weights.versions, containerPath: versionsInTools, readOnly: true }]),
        ],
        upload: [{ file: uploaded, content: text }],
      },
      versions: [...versions, ...(reload?.startedWith ?? [])],
    });
    if (weights?.filledBy !== undefined) {
      const filled = `docker_container.${weights.filledBy.friendlyUniqueId}`;
      apply.container.addOverride("depends_on", [filled]);
    }
    this.mount = {
      volumeName: volume.name,
      containerPath: `${modelRepositoryMount}/${model}/configs`,
      readOnly: true,
    };
  }
}

function weightsArguments({
  preprocessing,
  versions,
}: NonNullable<ModelConfigurationProps["towerWeights"]>): readonly string[] {
  return [
    ...["--weights", `${weightsInTools}/model.onnx`, "--preprocessing", preprocessing],
    ...(versions === undefined ? [] : ["--versions", versionsInTools]),
  ];
}

function reloadArguments({
  url,
  timeoutSeconds,
  startedWith,
}: NonNullable<ModelConfigurationProps["reload"]>): readonly string[] {
  const generation = expression(`substr(sha256("${startedWith.join(" ")}"), 0, 12)`);
  return [
    ...["--server", url],
    ...["--generation", generation],
    ...["--timeout-seconds", String(timeoutSeconds)],
  ];
}
