import { createHash } from "node:crypto";
import { basename, dirname } from "node:path";
import type { Container, ContainerVolumes } from "@cdktf/provider-docker/lib/container/index.js";
import { Volume } from "@cdktf/provider-docker/lib/volume/index.js";
import { Construct } from "constructs";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { TerraformLocal } from "../cdktf.ts";
import { expression } from "../expression.ts";
import { nameInStack, objectName } from "../names.ts";
import {
  type FileVariant,
  type ServedTower,
  servedTowers,
  tokenizerFile,
  towerFolder,
  towerSuffix,
} from "../served-towers.ts";
import type { GpuHost } from "./gpu-host.ts";
import { OneShot } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";
import {
  ofModel,
  towerFiles,
  weightsCondition,
  weightsDiskMiB,
  weightsPath,
} from "./weights-file.ts";

/** Location of the weights on a host. */
export type WeightsSource =
  /** Docker volumes, filled from the deploying machine and verified by checksum. */
  | "volume"
  /** Folder of the host. */
  | "host-path"
  /** The images contain the weights. */
  | "image";

export interface ModelWeightsProps {
  readonly host: GpuHost;
  /** Embed image, in which the checksums are verified. */
  readonly tools: ServerImage;
  readonly source: WeightsSource;
  /**
   * Model repository: absolute, or relative to the project. On the host if `source` is `host-path`, otherwise on the
   * deploying machine.
   */
  readonly modelRepository: string;
  /**
   * Models with their weights in the repository; the first is the default of requests.
   *
   * @default - images with OpenCLIP ViT-B/32
   */
  readonly models?: readonly ModelSpec[];
  /**
   * Variant of the image towers whose version 1 contains the weights. `u8` files contain the normalisation; only Tritons with the
   * backend `onnxruntime` read them.
   *
   * @default "fp32"
   */
  readonly variant?: Exclude<FileVariant, "trt">;
}

const mountInTools = "/weights";

/** Names of external data beside a model file, as PyTorch, Optimum and `transformers.js` write them. */
const externalData = "{*.data,*_data,*_data_*}";

/** Weights of one tower on a host. */
export interface TowerWeights {
  readonly tower: ServedTower;
  /** Checksum of the file as an expression; absent if the file is not on the deploying machine. */
  readonly sha256?: string;
  /**
   * Start of the checksum, for names of derived objects. With `host-path`, a hash of the path, because the file is not
   * read; empty if the images contain the weights.
   */
  readonly version: string;
  readonly mount?: Pick<ContainerVolumes, "hostPath" | "volumeName">;
  /** Container that fills the volume. */
  readonly filledBy?: Container;
}

/**
 * Weights of models on a host, one file per tower. Terraform's state contains only their paths and checksums. Changed
 * weights get a new volume, which is filled and verified before any service is stopped.
 */
export class ModelWeights extends Construct {
  readonly source: WeightsSource;
  readonly modelRepository: string;
  readonly models: readonly ModelSpec[];
  /** Variant of the image towers. */
  readonly variant: Exclude<FileVariant, "trt">;
  /** Weights of each tower of the models. */
  readonly towers: readonly TowerWeights[];
  readonly #host: GpuHost;
  readonly #versions = new Map<string, Volume>();

  constructor(scope: Construct, id: string, props: ModelWeightsProps) {
    super(scope, id);

    const { source, models = defaultModels, variant = "fp32" } = props;
    this.#host = props.host;
    this.source = source;
    this.modelRepository = props.modelRepository;
    this.models = models;
    this.variant = variant;
    this.towers = servedTowers(models).map((tower) => this.#weightsOf(tower, props));
  }

  #weightsOf(tower: ServedTower, props: ModelWeightsProps): TowerWeights {
    const { host, source, modelRepository } = props;
    if (source === "image") return { tower, version: "" };
    const file = weightsPath(modelRepository, tower, this.variant);
    for (const { path, what } of towerFiles(tower, modelRepository, this.variant)) {
      host.requireFile({ path, on: source === "host-path" ? "host" : "here", what });
    }
    if (source === "host-path") {
      const folder = dirname(file);
      const version = createHash("sha256").update(folder).digest("hex").slice(0, 12);
      return { tower, version, mount: { hostPath: host.path(folder) } };
    }
    host.requireDisk({ what: `weights${ofModel(tower)}`, miB: weightsDiskMiB(tower) });
    return this.#addVolume(tower, props, file);
  }

  #addVolume(tower: ServedTower, props: ModelWeightsProps, path: string): TowerWeights {
    const { host } = props;
    const suffix = towerSuffix(tower);
    const scope = suffix === "" ? this : new Construct(this, suffix.slice(1));
    const file = host.sourcePath(path);
    const folder = dirname(file);
    // locals, because Terraform evaluates them once per plan and the files are large
    const data = new TerraformLocal(
      scope,
      "data",
      expression(`sort(fileset("${folder}", "${externalData}"))`),
    );
    const names = `local.${data.friendlyUniqueId}`;
    const all = `concat(["${basename(file)}"], ${names})`;
    const checksums = `[for name in ${all} : filesha256("${folder}/${expression("name")}")]`;
    const local = new TerraformLocal(
      scope,
      "sha256",
      expression(
        `try(length(${names}) == 0 ? filesha256("${file}") : sha256(join("", ${checksums})), "missing")`,
      ),
    );
    const checksum = `local.${local.friendlyUniqueId}`;
    const sha256 = expression(checksum);
    const version = expression(`substr(${checksum}, 0, 12)`);
    const volume = new Volume(scope, "volume", {
      provider: host.provider,
      name: `${objectName(this)}${suffix}-${version}`,
      lifecycle: {
        createBeforeDestroy: true,
        precondition: [weightsCondition(path, `${checksum} != "missing"`, tower)],
      },
    });
    const check = this.#fill(scope, { tower, props, volume, file, sha256 });
    check.container.addOverride("dynamic.upload", {
      for_each: expression(names),
      content: {
        file: `${mountInTools}/${expression("upload.value")}`,
        source: `${folder}/${expression("upload.value")}`,
        source_hash: expression(`filesha256("${folder}/${expression("upload.value")}")`),
      },
    });
    const mount = { volumeName: volume.name };
    return { tower, sha256, version, mount, filledBy: check.container };
  }

  #fill(scope: Construct, { tower, props, volume, file, sha256 }: FillOptions): OneShot {
    const { host, tools } = props;
    const tokenizer = tokenizerFile(tower);
    const tokenizerSource = file.replace(/[^/]+$/, tokenizer ?? "");
    return new OneShot(scope, "check", {
      host,
      image: tools,
      service: `${nameInStack(this)}${towerSuffix(tower)}`,
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
          ...(tokenizer === undefined
            ? []
            : [
                {
                  file: `${mountInTools}/${tokenizer}`,
                  source: tokenizerSource,
                  sourceHash: expression(`filesha256("${tokenizerSource}")`),
                },
              ]),
        ],
      },
      versions: [sha256],
    });
  }

  /** Mounts of the weights in a container that serves the image towers in `variant`. */
  mounts(variant: FileVariant = this.variant): readonly ContainerVolumes[] {
    return this.#mountsOf(this.towers, variant);
  }

  /**
   * Mounts of volumes for versions beside version 1, which `clipstack model deploy` adds, in a container that serves the image towers in
   * `variant`. All containers share them. Changed weights of version 1 get a new, empty volume.
   */
  versionMounts(variant: FileVariant = this.variant): readonly ContainerVolumes[] {
    return this.towers.map((weights) => ({
      volumeName: this.#versionsOf(weights).name,
      containerPath: `${modelRepositoryMount}/${towerFolder(weights.tower, variant)}`,
      // writable, so that the engine can mount version 1 and the configuration in it; it belongs to root
      readOnly: false,
    }));
  }

  #versionsOf({ tower, version }: TowerWeights): Volume {
    const suffix = towerSuffix(tower);
    const existing = this.#versions.get(suffix);
    if (existing !== undefined) return existing;
    const volume = new Volume(this, `versions${suffix}`, {
      provider: this.#host.provider,
      name: `${objectName(this)}${suffix}-versions-${version}`,
      lifecycle: { createBeforeDestroy: true },
    });
    this.#versions.set(suffix, volume);
    return volume;
  }

  /** Mounts of the text towers with a tokenizer file, which a gateway reads. */
  tokenizerMounts(): readonly ContainerVolumes[] {
    const withFile = this.towers.filter(({ tower }) => tokenizerFile(tower) !== undefined);
    return this.#mountsOf(withFile, this.variant);
  }

  #mountsOf(towers: readonly TowerWeights[], variant: FileVariant): readonly ContainerVolumes[] {
    return towers.flatMap(({ tower, mount }) => {
      if (mount === undefined) return [];
      const containerPath = `${modelRepositoryMount}/${towerFolder(tower, variant)}/1`;
      return [{ ...mount, containerPath, readOnly: true }];
    });
  }
}

interface FillOptions {
  readonly tower: ServedTower;
  readonly props: ModelWeightsProps;
  readonly volume: Volume;
  readonly file: string;
  readonly sha256: string;
}
