import { z } from "zod";
import { defaultTritonImage } from "../../contract/triton-releases.ts";
import { image, oneOf, text } from "./setting-types.ts";

type BaseImage = "NODE_IMAGE" | "CUDA_IMAGE" | "TRITON_IMAGE";

export const proxy = text(
  "the URL of a proxy without user and password, like 'http://proxy.mine:3128'",
  /^https?:\/\/[^\s/@]+\/?$/,
).optional();

/** Image that exists or is built: its name, or an object with `source`. */
const imageSource = <const Existing extends "pull" | "local">(
  existing: Existing,
  ...baseImages: readonly [BaseImage, ...BaseImage[]]
) =>
  z
    .union([
      image,
      z.discriminatedUnion(
        "source",
        [
          z.strictObject({ source: z.literal(existing), name: image }),
          z.strictObject({
            source: z.literal("build"),
            buildArgs: z
              .strictObject({
                ...(Object.fromEntries(
                  baseImages.map((name) => [name, image.optional()]),
                ) as Record<BaseImage, z.ZodOptional<typeof image>>),
                HTTP_PROXY: proxy,
                HTTPS_PROXY: proxy,
                NO_PROXY: text("hosts, separated by commas", /^[^\s@]+$/).optional(),
              })
              .optional(),
          }),
        ],
        oneOf("source", [existing, "build"]),
      ),
    ])
    .transform((value) => (typeof value === "string" ? { source: existing, name: value } : value));

const buildOrPull =
  "`name:1.2` or `name@sha256:…`, or `{ source: pull, name: … }`; or `{ source: build }`: the host builds it";

export const embedImage = imageSource("pull", "NODE_IMAGE", "CUDA_IMAGE")
  .optional()
  .describe(
    `Embed image: ${buildOrPull} from \`inference-image/\`, with \`buildArgs\` NODE_IMAGE and CUDA_IMAGE for other base images, and HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Default: the image that was published with this version, by digest; in a checkout and with \`weights: image\`, a build.`,
  );

/** Triton's image; the default is a tag and not a digest, because a tag shows the version. */
export const tritonImage = imageSource("pull", "TRITON_IMAGE")
  .prefault(defaultTritonImage)
  .describe(
    `Triton's image, used with the server \`tritonserver\`: ${buildOrPull} from \`Dockerfile.triton\`.`,
  );

/** Embed image of a kind cluster, which pulls nothing. */
export const kindImage = imageSource("local", "NODE_IMAGE")
  .prefault({ source: "build" })
  .describe(
    "Embed image that contains the weights; it is copied into the node, and nothing is pulled. `{ source: build }`: this machine's Docker builds it as `clipstack/embed:k8s-cpu-…`, with `buildArgs` NODE_IMAGE for another base image. `name:1.2`, or `{ source: local, name: … }`: an image in this machine's Docker.",
  );
