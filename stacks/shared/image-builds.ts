import type {
  BuiltImageSource,
  ImageBuild,
  ImageSource,
} from "../../constructs/docker/server-image.ts";
import { servedTowers, towerFolder } from "../../constructs/models/served-towers.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { publishedImage } from "../../contract/release.ts";
import type { ModelPrecision } from "../../contract/server/server-env.ts";
import { packagedPath } from "../../model-tools/files/folders.ts";

/** Image in the settings: a name to pull, or a build from this repository. */
export type ImageSetting = { readonly source: "pull"; readonly name: string } | BuildSetting;

interface BuildSetting {
  readonly source: "build";
  readonly buildArgs?: Readonly<Record<string, string | undefined>> | undefined;
}

/** Files that `.dockerignore` excludes from a build. */
const ignore = [
  "(^|/)(dist|node_modules)/",
  "(^|/)test-[^/]*$",
  "[.](test[.]ts|suite[.]ts|md|part)$",
  "^(bulk|client|inference|http|emulator|inference-image|model-tools)/.*[.]py$",
  "^model-tools/(python|samples)/",
  "^inference/preprocess/kernel/",
  "^[^/]*_u8/1/",
].join("|");

const server = {
  context: packagedPath("."),
  files: [
    "{.dockerignore,LICENSE,NOTICE}",
    "{contract,inference,client,model-tools,bulk,http,emulator,inference-image}/**",
  ],
  ignore,
};

const repository = { context: "model_repository", ignore };

/** Name and start of the tag of the image for clusters, which contains the weights. */
export const clusterImage = "clipstack/embed:k8s-cpu";

const embedBuilds = {
  "embed-cpu": {
    ...server,
    name: "clipstack/embed:cpu",
    dockerfile: "inference-image/Dockerfile",
  },
  "embed-gpu": {
    ...server,
    name: "clipstack/embed:gpu",
    dockerfile: "inference-image/Dockerfile.gpu",
  },
} as const satisfies Record<string, ImageBuild>;

const tritonBuild = {
  ...repository,
  name: "clipstack/triton:cuda",
  dockerfile: "image/Dockerfile.triton",
} as const satisfies Partial<ImageBuild>;

/**
 * Source of the embed image.
 *
 * @param setting - Undefined: the published image of this version, if there is one and no weights are added.
 * @param models - Models whose weights are added on top; undefined without weights.
 */
export function embedImage(
  kind: keyof typeof embedBuilds,
  setting: ImageSetting | undefined,
  models: readonly ModelSpec[] | undefined,
  precision?: ModelPrecision,
): ImageSource {
  if (setting?.source === "pull") return setting;
  const published = publishedImage(kind);
  if (setting === undefined && models === undefined && published !== undefined) {
    return { source: "pull", name: published };
  }
  const build = embedBuilds[kind];
  const weights = models && weightsBuild(`${build.name}-weights`, models, precision);
  return built(build, setting ?? { source: "build" }, weights);
}

/** Build of the PyTorch baseline, on a host with or without a GPU. */
export const pytorchImage: BuiltImageSource = {
  source: "build",
  build: {
    context: packagedPath("."),
    files: [
      ".dockerignore",
      "bench/baselines/pytorch/{Dockerfile,*.py,requirements.txt}",
      "model-tools/python/export/{requirements,torch-pypi}.txt",
    ],
    name: "clipstack/pytorch-baseline:cuda",
    dockerfile: "bench/baselines/pytorch/Dockerfile",
  },
};

/** Build of the image for clusters, with the weights of `models`. */
export function kindImage(
  setting: BuildSetting,
  models: readonly ModelSpec[] = defaultModels,
  precision?: ModelPrecision,
): BuiltImageSource {
  return built(embedBuilds["embed-cpu"], setting, weightsBuild(clusterImage, models, precision));
}

function built(
  build: ImageBuild,
  { buildArgs }: BuildSetting,
  weights: ImageBuild | undefined,
): BuiltImageSource {
  return {
    source: "build",
    build,
    ...(buildArgs !== undefined && { buildArgs }),
    ...(weights !== undefined && { weights }),
  };
}

function weightsBuild(
  name: string,
  models: readonly ModelSpec[],
  precision: ModelPrecision | undefined,
): ImageBuild {
  return {
    ...repository,
    name,
    dockerfile: "image/Dockerfile.weights",
    files: [
      ".dockerignore",
      "image/{Dockerfile.weights,towers,weights.sh}",
      ...towerPatterns(models, "{,_trt}"),
    ],
    models,
    ...(precision !== undefined && { precision }),
  };
}

/**
 * Source of the Triton image.
 *
 * @param models - Models whose weights it contains; undefined without weights.
 */
export function tritonImage(
  setting: ImageSetting,
  models: readonly ModelSpec[] | undefined,
): ImageSource {
  if (setting.source === "pull") return setting;
  const suffixes = "{,_trt,_u8,_preprocess,_jpeg}";
  return {
    source: "build",
    build: {
      ...tritonBuild,
      files: [
        ".dockerignore",
        "image/{Dockerfile.triton,launch.py,towers,triton,triton-requirements.txt,weights.sh}",
        ...towerPatterns(models ?? defaultModels, suffixes),
      ],
      ...(models !== undefined && { models }),
    },
    buildArgs: { ...setting.buildArgs, WEIGHTS: models === undefined ? "none" : "image" },
  };
}

/** Folders of the towers in the model repository, with these suffixes. */
function towerPatterns(models: readonly ModelSpec[], suffixes: string): readonly string[] {
  return servedTowers(models).map((tower) => `${towerFolder(tower, "fp32")}${suffixes}/**`);
}
