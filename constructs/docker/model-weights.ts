import { createHash } from "node:crypto";
import { basename, dirname } from "node:path";
import { Construct } from "constructs";
import { z } from "zod";
import type { Container, ContainerVolumes } from "#providers/docker/lib/container/index.js";
import { Volume } from "#providers/docker/lib/volume/index.js";
import { tensorrtFile } from "../../contract/model-config.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import { nextModelName } from "../../contract/triton-models.ts";
import { check, findingIf } from "../checks/findings.ts";
import { checkedProps } from "../checks/props.ts";
import { downloadFindings, unknownTowerFindings } from "../checks/weights.ts";
import { type ByTower, type HostDownload, towerName } from "../models/downloaded-weights.ts";
import {
  type FileKind,
  type ServedTower,
  servedTowers,
  tokenizerFile,
  towerFolder,
  towerSuffix,
} from "../models/served-towers.ts";
import {
  ofModel,
  tensorrtCondition,
  tensorrtPath,
  towerFiles,
  weightsCondition,
  weightsDiskMiB,
  weightsPath,
} from "../models/weights-file.ts";
import { TerraformLocal } from "../terraform/cdktf.ts";
import { expression } from "../terraform/expression.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import { downloadedTower } from "./downloaded-tower.ts";
import type { GpuHost } from "./gpu-host.ts";
import { OneShot } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";

/** Location of the weights on a host. */
export type WeightsSource =
  /** Docker volumes, filled from the deploying machine and verified by checksum. */
  | "volume"
  /** Folder of the host. */
  | "host-path"
  /** The images contain the weights. */
  | "image"
  /** Docker volumes, into which the host downloads the files once. It verifies their checksums. */
  | "url";

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
   * Files of each tower with the source `url`, by name: `dinov2-small:image`.
   *
   * @default - none
   */
  readonly downloads?: ByTower<HostDownload>;
  /**
   * Models with their weights in the repository; the first is the default of requests.
   *
   * @default - images with OpenCLIP ViT-B/32
   */
  readonly models?: readonly ModelSpec[];
  /**
   * Model kind of the image towers whose version 1 contains the weights. `u8` files contain the normalisation; only Triton servers with the
   * backend `onnxruntime` read them.
   *
   * @default "fp32"
   */
  readonly modelKind?: Exclude<FileKind, "trt">;
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
  /** Model kind of the image towers. */
  readonly modelKind: Exclude<FileKind, "trt">;
  /** Weights of each tower of the models. */
  readonly towers: readonly TowerWeights[];
  readonly #props: ModelWeightsProps;
  #tensorrtTowers: readonly TowerWeights[] | undefined;
  readonly #versions = new Map<string, Volume>();

  constructor(scope: Construct, id: string, given: ModelWeightsProps) {
    super(scope, id);

    const props = checkedProps(
      this,
      given,
      {
        source: z.enum(["volume", "host-path", "image", "url"]),
        modelRepository: z.string({ error: "must be a path" }).min(1, "must be a path"),
        modelKind: z.enum(["fp32", "u8"]).optional(),
      },
      { source: "volume", modelRepository: "model_repository" },
    );

    const { source, models = defaultModels, modelKind = "fp32" } = props;
    this.#props = props;
    this.source = source;
    this.modelRepository = props.modelRepository;
    this.models = models;
    this.modelKind = modelKind;
    this.#checkDownloads(props);
    this.towers = servedTowers(models).map((tower) => this.#weightsOf(tower, props));
  }

  #checkDownloads({ source, downloads }: ModelWeightsProps): void {
    check(this, () =>
      source === "url"
        ? [
            ...unknownTowerFindings("downloads", downloads ?? {}, servedTowers(this.models)),
            ...downloadFindings("downloads", downloads ?? {}, servedTowers(this.models)),
          ]
        : findingIf(
            downloads !== undefined,
            "downloads",
            "be omitted unless weights is url",
            source,
          ),
    );
  }

  #weightsOf(tower: ServedTower, props: ModelWeightsProps): TowerWeights {
    const { host, source, modelRepository } = props;
    if (source === "image") return { tower, version: "" };
    if (source === "url") {
      const download = props.downloads?.[towerName(tower)];
      const files = [
        [undefined, download] as const,
        [tokenizerFile(tower), download?.tokenizer] as const,
      ];
      return downloadedTower(this, tower, {
        host,
        tools: props.tools,
        suffix: towerSuffix(tower),
        files,
      });
    }
    const file = weightsPath(modelRepository, tower, this.modelKind);
    const on = source === "host-path" ? "host" : "here";
    const files = towerFiles(tower, modelRepository, this.modelKind);
    host.require({ files: files.map(({ path, what }) => ({ path, on, what })) });
    if (source === "host-path") return { tower, ...onHost(host, file) };
    host.require({ disk: [{ what: `weights${ofModel(tower)}`, miB: weightsDiskMiB(tower) }] });
    const suffix = towerSuffix(tower);
    const scope = suffix === "" ? this : new Construct(this, suffix.slice(1));
    return this.#addVolume(scope, {
      tower,
      props,
      path: file,
      suffix,
      condition: weightsCondition,
    });
  }

  /**
   * Files of the towers in half precision, beside their weights, for TensorRT that takes the precision from the graph. Created on first
   * use.
   */
  get tensorrtTowers(): readonly TowerWeights[] {
    this.#tensorrtTowers ??= this.towers.map(({ tower }) => this.#tensorrtFileOf(tower));
    return this.#tensorrtTowers;
  }

  #tensorrtFileOf(tower: ServedTower): TowerWeights {
    const { host, source, modelRepository } = this.#props;
    if (source === "image") return { tower, version: "" };
    const what = `the FP16 file${ofModel(tower)} for TensorRT`;
    if (source === "url") {
      const download = this.#props.downloads?.[towerName(tower)]?.tensorrt;
      const path = `downloads.${towerName(tower)}.tensorrt`;
      const must = `have the url and sha256 of ${tensorrtFile}, which TensorRT 11 requires`;
      check(this, () => findingIf(download === undefined, path, must, "nothing"));
      const suffix = `${towerSuffix(tower)}-fp16`;
      const files = [[tensorrtFile, download]] as const;
      return downloadedTower(this, tower, { host, tools: this.#props.tools, suffix, files });
    }
    const path = tensorrtPath(weightsPath(modelRepository, tower, "fp32"));
    host.require({ files: [{ path, on: source === "host-path" ? "host" : "here", what }] });
    if (source === "host-path") return { tower, ...onHost(host, path) };
    host.require({ disk: [{ what, miB: weightsDiskMiB(tower, "fp16") }] });
    const suffix = `${towerSuffix(tower)}-fp16`;
    return this.#addVolume(new Construct(this, suffix.slice(1)), {
      tower,
      props: this.#props,
      path,
      suffix,
      condition: tensorrtCondition,
      data: `${tensorrtFile}.data`,
    });
  }

  #addVolume(
    scope: Construct,
    { tower, props, path, suffix, condition, data: pattern = externalData }: VolumeOptions,
  ): TowerWeights {
    const { host } = props;
    const file = host.sourcePath(path);
    const folder = dirname(file);
    // locals, because Terraform evaluates them once per plan and the files are large
    const data = new TerraformLocal(
      scope,
      "data",
      expression(`sort(fileset("${folder}", "${pattern}"))`),
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
        precondition: [condition(path, `${checksum} != "missing"`, tower)],
      },
    });
    const check = this.#fill(scope, { tower, props, volume, file, sha256, suffix });
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

  #fill(scope: Construct, { tower, props, volume, file, sha256, suffix }: FillOptions): OneShot {
    const { host, tools } = props;
    const name = basename(file);
    const tokenizer = tokenizerFile(tower);
    const tokenizerSource = file.replace(/[^/]+$/, tokenizer ?? "");
    return new OneShot(scope, "check", {
      host,
      image: tools,
      service: `${nameInStack(this)}${suffix}`,
      run: {
        command: [
          ...["check-weights", "--folder", mountInTools, "--sha256", sha256],
          ...(name === "model.onnx" ? [] : ["--file", name]),
        ],
        networkMode: "none",
        volumes: [{ volumeName: volume.name, containerPath: mountInTools }],
        upload: [
          { file: `${mountInTools}/${name}`, source: file, sourceHash: sha256 },
          // manifest of the weights, if there is one
          {
            file: `${mountInTools}/${name}.json`,
            content: expression(`try(file("${file}.json"), "{}")`),
          },
          ...(tokenizer === undefined || name !== "model.onnx"
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

  /** Mounts of the weights in a container that serves the image towers in `modelKind`. */
  mounts(
    modelKind: FileKind = this.modelKind,
    towers: readonly TowerWeights[] = this.towers,
  ): readonly ContainerVolumes[] {
    return this.#mountsOf(towers, modelKind);
  }

  /**
   * Mounts of volumes for versions beside version 1, which `clipstack model deploy` adds, in a container that serves the image towers in
   * `modelKind`, under both names of the model. All containers share them. Changed weights of version 1 get a new, empty volume.
   */
  versionMounts(modelKind: FileKind = this.modelKind): readonly ContainerVolumes[] {
    return this.towers.flatMap((weights) => {
      const volumeName = this.#versionsOf(weights).name;
      const containerPath = `${modelRepositoryMount}/${towerFolder(weights.tower, modelKind)}`;
      return [
        // writable, so that the engine can mount version 1 and the configuration in it; it belongs to root
        { volumeName, containerPath, readOnly: false },
        { volumeName, containerPath: nextModelName(containerPath), readOnly: true },
      ];
    });
  }

  #versionsOf({ tower, version }: TowerWeights): Volume {
    const suffix = towerSuffix(tower);
    const existing = this.#versions.get(suffix);
    if (existing !== undefined) return existing;
    const volume = new Volume(this, `versions${suffix}`, {
      provider: this.#props.host.provider,
      name: `${objectName(this)}${suffix}-versions-${version}`,
      lifecycle: { createBeforeDestroy: true },
    });
    this.#versions.set(suffix, volume);
    return volume;
  }

  /** Mounts of the text towers with a tokenizer file, which a gateway reads. */
  tokenizerMounts(): readonly ContainerVolumes[] {
    const withFile = this.towers.filter(({ tower }) => tokenizerFile(tower) !== undefined);
    return this.#mountsOf(withFile, this.modelKind);
  }

  #mountsOf(towers: readonly TowerWeights[], modelKind: FileKind): readonly ContainerVolumes[] {
    return towers.flatMap(({ tower, mount }) => {
      if (mount === undefined) return [];
      const containerPath = `${modelRepositoryMount}/${towerFolder(tower, modelKind)}/1`;
      return [{ ...mount, containerPath, readOnly: true }];
    });
  }
}

/** Version and mount of the folder of a file of the host. */
function onHost(host: GpuHost, file: string): Pick<TowerWeights, "version" | "mount"> {
  const folder = dirname(file);
  const version = createHash("sha256").update(folder).digest("hex").slice(0, 12);
  return { version, mount: { hostPath: host.path(folder) } };
}

interface VolumeOptions {
  readonly tower: ServedTower;
  readonly props: ModelWeightsProps;
  /** File that fills the volume. */
  readonly path: string;
  /** End of the names of its objects. */
  readonly suffix: string;
  /** Precondition that the file exists. */
  readonly condition: typeof weightsCondition;
  /** Pattern of the files with its external data. @default {@link externalData} */
  readonly data?: string;
}

interface FillOptions extends Pick<VolumeOptions, "tower" | "props" | "suffix"> {
  readonly volume: Volume;
  readonly file: string;
  readonly sha256: string;
}
