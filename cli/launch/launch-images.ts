import { z } from "zod";
import { defaultModelsArgument } from "../../contract/server/model-list.ts";

const body = z.record(z.string(), z.looseObject({}));
const document = z.object({ resource: z.record(z.string(), body).default({}) });

function resourcesIn(json: string) {
  return document.parse(JSON.parse(json)).resource;
}

const dockerImage = z.object({
  name: z.string(),
  build: z.object({ build_args: z.record(z.string(), z.string()).default({}) }).optional(),
});

/** Names of pulled images; Terraform computes the names of built images. */
export function pulledImages(json: string): ReadonlyMap<string, string> {
  return imagesWith(json, ({ name, build }) => (build === undefined ? name : undefined));
}

/** Returns the Triton image of each Triton server: the pulled image, or the base image of a built one. */
export function tritonBases(json: string): ReadonlyMap<string, string> {
  return imagesWith(json, ({ name, build }) =>
    build === undefined ? name : build.build_args.TRITON_IMAGE,
  );
}

function imagesWith(
  json: string,
  of: (image: z.infer<typeof dockerImage>) => string | undefined,
): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(resourcesIn(json).docker_image ?? {}).flatMap(([id, image]) => {
      const name = of(dockerImage.parse(image));
      return name === undefined ? [] : [[`docker_image.${id}`, name] as const];
    }),
  );
}

interface AllInOneBuild {
  /** Name of the image. */
  readonly image: string;
  /** Server of the Triton servers; undefined without a Triton server. */
  readonly server: string | undefined;
  /** Base image of the Triton servers. */
  readonly tritonImage: string | undefined;
  readonly embedImage: string;
  /** Whether the image contains the weights. */
  readonly hasWeights: boolean;
  /** Whether it runs on a GPU: hosts with NVIDIA GPUs are amd64, the building machine may be another. */
  readonly hasGpu: boolean;
  /** Models in the image, as its build argument `MODELS`. */
  readonly models: string;
}

export function buildCommand({
  image,
  server,
  tritonImage,
  embedImage,
  hasWeights,
  hasGpu,
  models,
}: AllInOneBuild): readonly string[] {
  const base = server === "tritonserver" ? tritonImage : embedImage;
  const args = {
    EMBED_IMAGE: embedImage,
    TRITON_SERVER: server ?? "emulator",
    ...(base === undefined ? {} : { TRITON_IMAGE: base }),
    ...(hasWeights ? { WEIGHTS: "image" } : {}),
    ...(models === defaultModelsArgument ? {} : { MODELS: models }),
  };
  return [
    "docker",
    "build",
    ...(hasGpu ? ["--platform", "linux/amd64"] : []),
    "--file",
    "model_repository/image/Dockerfile.all-in-one",
    ...Object.entries(args).flatMap(([name, value]) => ["--build-arg", `${name}=${value}`]),
    "--tag",
    image,
    "model_repository",
  ];
}
