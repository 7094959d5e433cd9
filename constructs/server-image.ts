import { Image } from "@cdktf/provider-docker/lib/image/index.js";
import { Construct } from "constructs";
import { TerraformLocal } from "./cdktf.ts";
import { expression } from "./expression.ts";

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
export type ImageKind = "embed-cpu" | "embed-gpu" | "triton";

interface Build {
  /** From the project's root. */
  readonly context: string;
  /** From the context. */
  readonly dockerfile: string;
  /** What the Dockerfile copies from the context, and what says how: patterns of Terraform's `fileset`. */
  readonly files: readonly string[];
  /** Name of the image, and the beginning of its tag. */
  readonly name: string;
}

const serverFiles = ["package.json", "package-lock.json", "build.mjs", "image/**", "src/**"];

/** How each kind is built. */
export const builds: Readonly<Record<ImageKind, Build>> = {
  "embed-cpu": {
    context: "inference-image",
    dockerfile: "Dockerfile",
    files: [".dockerignore", "Dockerfile", ...serverFiles],
    name: "clipstack/embed:cpu",
  },
  "embed-gpu": {
    context: "inference-image",
    dockerfile: "Dockerfile.gpu",
    files: [".dockerignore", "Dockerfile.gpu", ...serverFiles],
    name: "clipstack/embed:gpu",
  },
  triton: {
    context: ".",
    dockerfile: "inference-image/Dockerfile.triton",
    files: [".dockerignore", "inference-image/Dockerfile.triton", "model_repository/**"],
    name: "clipstack/triton:cuda",
  },
};

export interface ServerImageProps {
  readonly kind: ImageKind;
  readonly source: ImageSource;
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

  constructor(scope: Construct, id: string, { kind, source }: ServerImageProps) {
    super(scope, id);

    this.kind = kind;
    const lifecycle = { createBeforeDestroy: true };
    if (source.source === "pull") {
      this.name = source.name;
      this.version = versionOf(source.name);
      this.resource = new Image(this, "image", { name: source.name, keepLocally: true, lifecycle });
    } else {
      const build = builds[kind];
      const buildArgs = { ...source.buildArgs };
      const content = new TerraformLocal(
        this,
        "content",
        expression(contentHash(build, JSON.stringify(buildArgs))),
      );
      this.version = expression(`local.${content.friendlyUniqueId}`);
      this.name = `${build.name}-${this.version}`;
      this.resource = new Image(this, "image", {
        name: this.name,
        keepLocally: false,
        buildAttribute: {
          // relative: it would be another build where the project lies elsewhere
          context: `${expression("path.root")}/../../../${build.context}`,
          dockerfile: build.dockerfile,
          buildArgs,
        },
        triggers: { content: this.version },
        lifecycle,
      });
      // BuildKit is reached through `docker`'s own context, which is another engine than the provider's
      this.resource.addOverride("build.use_legacy_builder", true);
    }
    this.imageId = this.resource.imageId;
  }
}

/** Twelve digits of a hash of every file that a build reads, its path included, and of `more`. */
function contentHash({ context, files }: Build, more: string): string {
  const folder = `${expression("path.root")}/../../../${context}`;
  const sets = files.map((pattern) => `fileset("${folder}", "${pattern}")`);
  const isTest = [
    'startswith(basename(file), "test-")',
    'endswith(file, ".test.ts")',
    'endswith(file, ".suite.ts")',
    'endswith(file, ".py")',
  ].join(" || ");
  const each = `"${expression("file")} ${expression(`filesha256("${folder}/${expression("file")}")`)}"`;
  const list = `[for file in sort(setunion(${sets.join(", ")})) : ${each} if !(${isTest})]`;
  return `substr(sha256(join("\\n", concat(${list}, [${JSON.stringify(more)}]))), 0, 12)`;
}

/** Tag of an image, or the start of its digest. */
function versionOf(image: string): string {
  return /@sha256:([0-9a-f]{12})/.exec(image)?.[1] ?? /:([^:/]+)$/.exec(image)?.[1] ?? "unknown";
}
