import { createHash } from "node:crypto";
import type { ContainerVolumes } from "@cdktf/provider-docker/lib/container/index.js";
import { Volume } from "@cdktf/provider-docker/lib/volume/index.js";
import { Construct } from "constructs";
import type { ModelName } from "../../contract/model-signature.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { TerraformLocal, TerraformStack } from "../cdktf.ts";
import { expression } from "../expression.ts";
import type { GpuHost } from "./gpu-host.ts";
import { OneShot } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";
import { weightsCondition, weightsFile, weightsFolder } from "./weights-file.ts";

/** How the weights come to the servers. */
export type WeightsSource =
  /** A volume of the host, filled once from the machine that deploys, and checked. */
  | "volume"
  /** A folder of the host. */
  | "host-path"
  /** The images have them. */
  | "image";

export interface ModelWeightsProps {
  readonly host: GpuHost;
  /** The embed image: it checks the weights. */
  readonly tools: ServerImage;
  readonly source: WeightsSource;
  /**
   * Model repository, which has the weights in `openclip_vit_b32/1`: relative to the project, or absolute. With `host-path`
   * on the host, else on the machine that deploys.
   */
  readonly modelRepository: string;
}

const mountInTools = "/weights";

/** Room for the weights, in MiB. */
const weightsMiB = 512;

/**
 * The weights of the models, one file for all. Terraform's state has their path and their checksum, and nothing else.
 * Another file is another volume, which is filled and checked before any service is stopped.
 */
export class ModelWeights extends Construct {
  readonly source: WeightsSource;
  /** Checksum of the file, as an expression; absent where it is not known here. */
  readonly sha256?: string;
  /**
   * For names of what is made of the weights: the beginning of the checksum. Of a folder of the host, which nobody looks into,
   * it stands for the path; empty where the image has them.
   */
  readonly version: string = "";
  readonly #mount: Pick<ContainerVolumes, "hostPath" | "volumeName"> | undefined;

  constructor(scope: Construct, id: string, props: ModelWeightsProps) {
    super(scope, id);

    const { host, tools, source, modelRepository } = props;
    this.source = source;
    const folder = `${modelRepository}/${weightsFolder}`;
    if (source === "image") return;
    host.needsFile({
      path: `${folder}/${weightsFile}`,
      on: source === "host-path" ? "host" : "here",
      what: "the file with the weights",
    });
    if (source === "host-path") {
      this.version = createHash("sha256").update(folder).digest("hex").slice(0, 12);
      this.#mount = { hostPath: host.path(folder) };
      return;
    }
    host.needsDisk({ what: "weights", miB: weightsMiB });

    const file = `${host.sourcePath(folder)}/${weightsFile}`;
    const local = new TerraformLocal(
      this,
      "sha256",
      // computed once for a plan: the file is large
      expression(`try(filesha256("${file}"), "missing")`),
    );
    const checksum = `local.${local.friendlyUniqueId}`;
    this.sha256 = expression(checksum);
    this.version = expression(`substr(${checksum}, 0, 12)`);

    const volume = new Volume(this, "volume", {
      name: `${TerraformStack.of(this).node.id}-weights-${this.version}`,
      lifecycle: {
        createBeforeDestroy: true,
        precondition: [weightsCondition(modelRepository, `${checksum} != "missing"`)],
      },
    });
    const sidecar = `${file}.json`;
    new OneShot(this, "check", {
      host,
      image: tools,
      service: "weights",
      run: {
        command: ["check-weights", ...["--folder", mountInTools], ...["--sha256", this.sha256]],
        networkMode: "none",
        volumes: [{ volumeName: volume.name, containerPath: mountInTools }],
        upload: [
          { file: `${mountInTools}/${weightsFile}`, source: file, sourceHash: this.sha256 },
          // what the weights are, where somebody wrote it down
          {
            file: `${mountInTools}/${weightsFile}.json`,
            content: expression(`try(file("${sidecar}"), "{}")`),
          },
        ],
      },
      versions: [this.sha256],
    });
    this.#mount = { volumeName: volume.name };
  }

  /** Where a server of `model` reads them. */
  mounts(model: ModelName): readonly ContainerVolumes[] {
    if (this.#mount === undefined) return [];
    const containerPath = `${modelRepositoryMount}/${model}/1`;
    return [{ ...this.#mount, containerPath, readOnly: true }];
  }
}
