import { createHash } from "node:crypto";
import { Image } from "@cdktf/provider-docker/lib/image/index.js";
import { Construct } from "constructs";
import { asWritten, TerraformLocal, type TerraformResource, TerraformStack } from "../cdktf.ts";
import { expression, projectFolder } from "../expression.ts";
import { contentHash } from "./content-hash.ts";
import { weightsCondition, weightsFile, weightsFolder } from "./weights-file.ts";

/** Where an image comes from. */
export type ImageSource =
  /** A registry. The name has a version, or better a digest. */
  | { readonly source: "pull"; readonly name: string }
  /** The project: the host builds it. */
  | { readonly source: "build"; readonly buildArgs?: BuildArgs };

/** Base images, by the name of the Dockerfile's argument. */
export type BuildArgs = Readonly<
  Partial<Record<"NODE_IMAGE" | "CUDA_IMAGE" | "TRITON_IMAGE", string>>
>;

/** What the project can build. */
export type ImageKind = "embed-cpu" | "embed-gpu" | "embed-k8s-cpu" | "triton";

interface Build {
  /** From the project's root. */
  readonly context: string;
  /** From the context. */
  readonly dockerfile: string;
  /** What the Dockerfile copies from the context, and what says how: patterns of Terraform's `fileset`. */
  readonly files: readonly string[];
  /** Name of the image, and the beginning of its tag. */
  readonly name: string;
  /** Whether the weights of the model repository go into it. */
  readonly hasWeights?: boolean;
}

/** Source code of the server image. */
const serverFiles = [".dockerignore", "{contract,inference,client,model-tools,inference-image}/**"];

/** Triton's image is 20 GB: the provider's own limit of 20 minutes is not for every line. */
const longest = "2h";

const embedCpu: Build = {
  context: ".",
  dockerfile: "inference-image/Dockerfile",
  files: serverFiles,
  name: "clipstack/embed:cpu",
};

/** How each kind is built. */
const builds: Readonly<Record<ImageKind, Build>> = {
  "embed-cpu": embedCpu,
  "embed-k8s-cpu": embedCpu,
  "embed-gpu": {
    context: ".",
    dockerfile: "inference-image/Dockerfile.gpu",
    files: serverFiles,
    name: "clipstack/embed:gpu",
  },
  triton: {
    context: "model_repository",
    dockerfile: "image/Dockerfile.triton",
    files: ["**"],
    name: "clipstack/triton:cuda",
  },
};

/** The image of clusters, with the weights in it: its name, and the beginning of its tag where it is built. */
export const clusterImage = "clipstack/embed:k8s-cpu";

/** Name of an embed image with the weights on top. */
function withWeights(kind: ImageKind): string {
  return kind === "embed-k8s-cpu" ? clusterImage : `${builds[kind].name}-weights`;
}

/** The weights, on top of an embed image. */
const weightsBuild: Omit<Build, "name"> = {
  context: "model_repository",
  dockerfile: "image/Dockerfile.weights",
  files: [".dockerignore", "image/{Dockerfile.weights,weights.sh}", "openclip_vit_b32{,_trt}/**"],
};

export interface ServerImageProps {
  readonly kind: ImageKind;
  readonly source: ImageSource;
  /** Whether the weights are in the image, if it is built; one that is pulled has what it has. */
  readonly weights: boolean;
  /** What must be there before it is built. */
  readonly dependsOn?: readonly TerraformResource[];
}

/**
 * An image on a host, pulled or built there. A change makes the new image before anything that runs is stopped.
 *
 * What was built is named by its content, by an expression: Terraform computes it, so that the synthesized text does not
 * change with the code.
 */
export class ServerImage extends Construct {
  readonly kind: ImageKind;
  /** The resource, for those that depend on it. */
  readonly resource: Image;
  /** Id of the image on the host: containers that run it are replaced with it. */
  readonly imageId: string;
  /** Name with a version; of a built image an expression, which is known when a plan is made. */
  readonly name: string;
  /** The version in the name, for names of what belongs to one version: a tag, or the beginning of a digest or hash. */
  readonly version: string;

  constructor(scope: Construct, id: string, props: ServerImageProps) {
    super(scope, id);

    const { kind, source, weights } = props;
    this.kind = kind;
    if (source.source === "pull") {
      this.name = source.name;
      this.version = versionOf(source.name);
      this.resource = new Image(this, "image", {
        name: source.name,
        keepLocally: true,
        timeouts: { create: longest },
        lifecycle: { createBeforeDestroy: true },
      });
    } else {
      const args = { ...source.buildArgs };
      const isTriton = kind === "triton";
      const first = new BuiltImage(
        this,
        "",
        { ...builds[kind], hasWeights: isTriton && weights },
        { ...args, ...(isTriton && { WEIGHTS: weights ? "image" : "none" }) },
        { after: props.dependsOn },
      );
      const last =
        isTriton || !weights
          ? first
          : new BuiltImage(
              this,
              "weights-",
              { ...weightsBuild, name: withWeights(kind), hasWeights: true },
              {
                IMAGE: expression(`${first.resource.fqn}.name`),
              },
              { base: first.version },
            );
      this.name = last.name;
      this.version = last.version;
      this.resource = last.resource;
    }
    this.imageId = this.resource.imageId;
  }
}

/** An image that a host builds. Its tag is made of the content of all that its build reads. */
class BuiltImage {
  readonly resource: Image;
  readonly name: string;
  readonly version: string;

  constructor(
    scope: Construct,
    prefix: string,
    build: Build,
    buildArgs: Readonly<Record<string, string>>,
    { base = "", after = [] }: { base?: string; after?: readonly TerraformResource[] },
  ) {
    // Two environments of a host have a name each: one that goes must not take the image of the other.
    const environment = TerraformStack.of(scope).node.id;
    const said = JSON.stringify(asWritten(scope, { environment, build, buildArgs }));
    const hash = expression(
      contentHash({
        folder: `${projectFolder}/${build.context}`,
        files: build.files,
        ignored,
        more: [createHash("sha256").update(said).digest("hex"), base],
      }),
    );
    const content = new TerraformLocal(scope, `${prefix}content`, hash);
    this.version = expression(`local.${content.friendlyUniqueId}`);
    this.name = `${build.name}-${this.version}`;
    this.resource = new Image(scope, `${prefix}image`, {
      name: this.name,
      keepLocally: false,
      buildAttribute: {
        // relative: it would be another build where the project lies elsewhere
        context: `${projectFolder}/${build.context}`,
        dockerfile: build.dockerfile,
        buildArgs,
      },
      triggers: { content: this.version },
      timeouts: { create: longest },
      dependsOn: after.length === 0 ? undefined : [...after],
      lifecycle: {
        createBeforeDestroy: true,
        ...(build.hasWeights && {
          precondition: [
            weightsCondition(
              "model_repository",
              `fileexists("${projectFolder}/model_repository/${weightsFolder}/${weightsFile}")`,
            ),
          ],
        }),
      },
    });
    // The provider's other way to build goes to the endpoint of the Docker command line, whatever its own `host` is.
    this.resource.addOverride("build.use_legacy_builder", true);
  }
}

/** What `.dockerignore` keeps out of a build: an expression of Terraform's `regexall`. */
const ignored = [
  "(^|/)(dist|node_modules)/",
  "(^|/)test-[^/]*$",
  "[.](test[.]ts|suite[.]ts|md|part)$",
  "^(client|inference|inference-image|model-tools)/.*[.]py$",
  "^model-tools/(python|samples)/",
  "^inference/preprocess/kernel/",
  "^openclip_vit_b32_u8/1/",
].join("|");

/** Tag of an image, or the start of its digest. */
function versionOf(image: string): string {
  return /@sha256:([0-9a-f]{12})/.exec(image)?.[1] ?? /:([^:/]+)$/.exec(image)?.[1] ?? "unknown";
}
