import { createHash } from "node:crypto";
import type { ContainerVolumes } from "@cdktf/provider-docker/lib/container/index.js";
import { Volume } from "@cdktf/provider-docker/lib/volume/index.js";
import { Construct } from "constructs";
import { type ModelName, openclipVitB32 } from "../../contract/model-signature.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { TerraformLocal } from "../cdktf.ts";
import { expression } from "../expression.ts";
import { nameInStack, objectName } from "../names.ts";
import type { GpuHost } from "./gpu-host.ts";
import { OneShot } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";
import { weightsCondition, weightsPath } from "./weights-file.ts";

/** Location of the weights on a host. */
export type WeightsSource =
  /** Docker volume, filled from the deploying machine and verified by checksum. */
  | "volume"
  /** Folder of the host. */
  | "host-path"
  /** The images contain the weights. */
  | "image";

export interface ModelWeightsProps {
  readonly host: GpuHost;
  /** Embed image, in which the checksum is verified. */
  readonly tools: ServerImage;
  readonly source: WeightsSource;
  /**
   * Model repository: absolute, or relative to the project. On the host if `source` is `host-path`, otherwise on the
   * deploying machine.
   */
  readonly modelRepository: string;
  /**
   * Model whose version 1 contains the weights.
   *
   * @default "openclip_vit_b32"
   */
  readonly model?: ModelName;
}

const mountInTools = "/weights";

/** Disk space of the weights, in MiB. */
const weightsMiB = 512;

/**
 * Weights of the models on a host, one file for all. Terraform's state contains only their path and checksum. Changed
 * weights get a new volume, which is filled and verified before any service is stopped.
 */
export class ModelWeights extends Construct {
  readonly source: WeightsSource;
  /** Model whose folder contains the weights. */
  readonly model: ModelName;
  /** Checksum of the file as an expression; absent if the file is not on the deploying machine. */
  readonly sha256?: string;
  /**
   * Start of the checksum, for names of derived objects. With `host-path`, a hash of the path, because the file is not
   * read; empty if the images contain the weights.
   */
  readonly version: string = "";
  readonly #mount: Pick<ContainerVolumes, "hostPath" | "volumeName"> | undefined;

  constructor(scope: Construct, id: string, props: ModelWeightsProps) {
    super(scope, id);

    const { host, source, modelRepository, model = openclipVitB32.name } = props;
    this.source = source;
    this.model = model;
    if (source === "image") return;
    host.requireFile({
      path: weightsPath(modelRepository, model),
      on: source === "host-path" ? "host" : "here",
      what: "the file with the weights",
    });
    if (source === "host-path") {
      const folder = `${modelRepository}/${model}/1`;
      this.version = createHash("sha256").update(folder).digest("hex").slice(0, 12);
      this.#mount = { hostPath: host.path(folder) };
      return;
    }
    host.requireDisk({ what: "weights", miB: weightsMiB });

    const file = host.sourcePath(weightsPath(modelRepository, model));
    // a local, because Terraform evaluates it once per plan and the file is large
    const local = new TerraformLocal(
      this,
      "sha256",
      expression(`try(filesha256("${file}"), "missing")`),
    );
    const checksum = `local.${local.friendlyUniqueId}`;
    this.sha256 = expression(checksum);
    this.version = expression(`substr(${checksum}, 0, 12)`);
    const volume = new Volume(this, "volume", {
      provider: host.provider,
      name: `${objectName(this)}-${this.version}`,
      lifecycle: {
        createBeforeDestroy: true,
        precondition: [
          weightsCondition(weightsPath(modelRepository, model), `${checksum} != "missing"`),
        ],
      },
    });
    this.#fill(props, volume, file, this.sha256);
    this.#mount = { volumeName: volume.name };
  }

  #fill({ host, tools }: ModelWeightsProps, volume: Volume, file: string, sha256: string): void {
    new OneShot(this, "check", {
      host,
      image: tools,
      service: nameInStack(this),
      run: {
        command: ["check-weights", ...["--folder", mountInTools], ...["--sha256", sha256]],
        networkMode: "none",
        volumes: [{ volumeName: volume.name, containerPath: mountInTools }],
        upload: [
          { file: `${mountInTools}/model.onnx`, source: file, sourceHash: sha256 },
          // manifest of the weights, if there is one
          {
            file: `${mountInTools}/model.onnx.json`,
            content: expression(`try(file("${file}.json"), "{}")`),
          },
        ],
      },
      versions: [sha256],
    });
  }

  /** Mounts of the weights in a container that serves `model`. */
  mounts(model: ModelName): readonly ContainerVolumes[] {
    if (this.#mount === undefined) return [];
    const containerPath = `${modelRepositoryMount}/${model}/1`;
    return [{ ...this.#mount, containerPath, readOnly: true }];
  }
}
