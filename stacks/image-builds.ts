import type {
  BuiltImageSource,
  ImageBuild,
  ImageSource,
} from "../constructs/docker/server-image.ts";
import { openclipVitB32 } from "../contract/model-signature.ts";

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
  "^(client|inference|inference-image|model-tools)/.*[.]py$",
  "^model-tools/(python|samples)/",
  "^inference/preprocess/kernel/",
  "^openclip_vit_b32_u8/1/",
].join("|");

const server = {
  context: ".",
  files: [".dockerignore", "{contract,inference,client,model-tools,inference-image}/**"],
  ignore,
};

const repository = { context: "model_repository", ignore };

const weightsPath = `model_repository/${openclipVitB32.name}/1/model.onnx`;

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

const tritonBuild: ImageBuild = {
  ...repository,
  name: "clipstack/triton:cuda",
  dockerfile: "image/Dockerfile.triton",
  files: ["**"],
};

/** Source of the embed image, with the weights on top if `weights` is set. */
export function embedImage(
  kind: keyof typeof embedBuilds,
  setting: ImageSetting,
  weights: boolean,
): ImageSource {
  if (setting.source === "pull") return setting;
  const build = embedBuilds[kind];
  return built(build, setting, weights ? weightsBuild(`${build.name}-weights`) : undefined);
}

/** Build of the image for clusters. */
export function kindImage(setting: BuildSetting): BuiltImageSource {
  return built(embedBuilds["embed-cpu"], setting, weightsBuild(clusterImage));
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

function weightsBuild(name: string): ImageBuild {
  return {
    ...repository,
    name,
    dockerfile: "image/Dockerfile.weights",
    files: [".dockerignore", "image/{Dockerfile.weights,weights.sh}", "openclip_vit_b32{,_trt}/**"],
    weightsPath,
  };
}

/** Source of the Triton image, with the weights in it if `weights` is set. */
export function tritonImage(setting: ImageSetting, weights: boolean): ImageSource {
  if (setting.source === "pull") return setting;
  return {
    source: "build",
    build: { ...tritonBuild, ...(weights && { weightsPath }) },
    buildArgs: { ...setting.buildArgs, WEIGHTS: weights ? "image" : "none" },
  };
}
