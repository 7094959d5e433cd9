import { createHash } from "node:crypto";
import { Construct } from "constructs";
import { Image } from "#providers/docker/lib/image/index.js";
import type { DockerProvider } from "#providers/docker/lib/provider/index.js";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModelsArgument, modelsArgument } from "../../contract/server/model-list.ts";
import type { ModelPrecision } from "../../contract/server/server-env.ts";
import { servedTowers } from "../models/served-towers.ts";
import {
  type TowerFile,
  towerFileConditions,
  towerFiles,
  weightsDiskMiB,
} from "../models/weights-file.ts";
import { asWritten, TerraformLocal, type TerraformResource } from "../terraform/cdktf.ts";
import { contentHash } from "../terraform/content-hash.ts";
import { expression, projectFolder } from "../terraform/expression.ts";
import { objectName } from "../terraform/names.ts";

/** Source of an image. */
export type ImageSource =
  /** Registry. The name has a version or, better, a digest. */
  | { readonly source: "pull"; readonly name: string }
  /** Build on the host. */
  | BuiltImageSource;

/** Build on the host. */
export interface BuiltImageSource {
  readonly source: "build";
  readonly build: ImageBuild;
  /**
   * Arguments of the Dockerfile. `TRITON_IMAGE` is the base image of a Triton image; its release and driver are checked.
   *
   * @default - the defaults of the Dockerfile
   */
  readonly buildArgs?: BuildArgs;
  /**
   * Second build that adds the weights; its argument `IMAGE` is the image of the first.
   *
   * @default - no second build
   */
  readonly weights?: ImageBuild;
}

/** Arguments of a Dockerfile by name; undefined is the default of the Dockerfile. */
export type BuildArgs = Readonly<Record<string, string | undefined>>;

/** Build of an image from files of the project. */
export interface ImageBuild {
  /** Name of the image and start of its tag: `clipstack/embed:cpu`. */
  readonly name: string;
  /** Build context, relative to the project. */
  readonly context: string;
  /** Dockerfile, relative to the context. */
  readonly dockerfile: string;
  /** Files that the build reads, as patterns of Terraform's `fileset`. A changed file rebuilds the image. */
  readonly files: readonly string[];
  /**
   * Files that do not affect the image, as a regular expression of Terraform's `regexall`.
   *
   * @default - none
   */
  readonly ignore?: string;
  /**
   * Models whose weights the build copies from its context, which is a model repository. Terraform checks at plan time that their files
   * exist. The Dockerfile has an argument `MODELS` for models other than the default.
   *
   * @default - no weights
   */
  readonly models?: readonly ModelSpec[];
  /**
   * Precision of the files that the embed server of the image loads.
   *
   * @default "fp32"
   */
  readonly precision?: ModelPrecision;
}

/** Files and disk space of the weights that a build copies. */
export function weightsIn({ build, weights = build }: BuiltImageSource): {
  readonly files: readonly TowerFile[];
  readonly miB: number;
} {
  const towers = servedTowers(weights.models ?? []);
  return {
    files: towers.flatMap((tower) => towerFiles(tower, weights.context, "fp32")),
    miB: towers.reduce((sum, tower) => sum + weightsDiskMiB(tower), 0),
  };
}

/** Time limit of a pull or a build. Triton's image has 20 GB, too much for the provider's default of 20 minutes. */
const timeLimit = "2h";

export interface ServerImageProps {
  readonly source: ImageSource;
  /**
   * Provider of the Docker engine.
   *
   * @default - the default Docker provider of the stack
   */
  readonly provider?: DockerProvider;
  /**
   * Resources that must exist before the build.
   *
   * @default - none
   */
  readonly dependsOn?: readonly TerraformResource[];
}

/**
 * Image on a Docker engine, pulled or built there. A new image exists before any container is replaced.
 *
 * A built image is named by the hash of its files. Terraform computes the hash, so that the synthesized JSON does not
 * change with the code.
 */
export class ServerImage extends Construct {
  /** Underlying resource. */
  readonly resource: Image;
  /** Id of the image on the engine. A container that refers to it is replaced with the image. */
  readonly imageId: string;
  /** Name with a version. For a built image, an expression known at plan time. */
  readonly name: string;
  /** Version in the name: the tag, or the start of the digest or content hash. */
  readonly version: string;

  constructor(
    scope: Construct,
    id: string,
    { source, provider, dependsOn = [] }: ServerImageProps,
  ) {
    super(scope, id);

    if (source.source === "pull") {
      this.name = source.name;
      this.version = versionOf(source.name);
      this.resource = new Image(this, "image", {
        provider,
        name: source.name,
        keepLocally: true,
        timeouts: { create: timeLimit },
        lifecycle: { createBeforeDestroy: true },
      });
    } else {
      const first = new BuiltImage(this, "", source.build, {
        provider,
        dependsOn,
        buildArgs: source.buildArgs,
      });
      const last =
        source.weights === undefined
          ? first
          : new BuiltImage(this, "weights-", source.weights, {
              provider,
              base: first.version,
              buildArgs: { IMAGE: expression(`${first.resource.fqn}.name`) },
            });
      this.name = last.name;
      this.version = last.version;
      this.resource = last.resource;
    }
    this.imageId = this.resource.imageId;
  }
}

interface BuiltImageOptions {
  /** @default - the default Docker provider of the stack */
  readonly provider?: DockerProvider | undefined;
  /** @default - none */
  readonly buildArgs?: BuildArgs | undefined;
  /**
   * Version of the base image, if that is built too.
   *
   * @default - no built base image
   */
  readonly base?: string;
  /** @default - none */
  readonly dependsOn?: readonly TerraformResource[];
}

/** Image built on a Docker engine. Its tag is a hash of everything that the build reads. */
class BuiltImage {
  readonly resource: Image;
  readonly name: string;
  readonly version: string;

  constructor(scope: Construct, prefix: string, build: ImageBuild, options: BuiltImageOptions) {
    const { provider, base = "", dependsOn = [] } = options;
    const { models = [], precision, ...files } = build;
    const { context, dockerfile } = build;
    const buildArgs = Object.fromEntries(
      Object.entries({ ...options.buildArgs, ...modelArguments(models, precision) }).flatMap(
        ([name, value]) => (value === undefined ? [] : [[name, value]]),
      ),
    );
    // the owner is part of the hash: destroying one environment must not remove the image of another
    const inputs = JSON.stringify(
      asWritten(scope, { owner: objectName(scope), build: files, buildArgs }),
    );
    const hash = contentHash({
      folder: `${projectFolder}/${context}`,
      files: build.files,
      ...(build.ignore !== undefined && { ignored: build.ignore }),
      more: [createHash("sha256").update(inputs).digest("hex"), base],
    });
    const content = new TerraformLocal(scope, `${prefix}content`, expression(hash));
    this.version = expression(`local.${content.friendlyUniqueId}`);
    this.name = `${build.name}-${this.version}`;
    this.resource = new Image(scope, `${prefix}image`, {
      provider,
      name: this.name,
      keepLocally: false,
      // a relative context, because an absolute one would differ between machines
      buildAttribute: { context: `${projectFolder}/${context}`, dockerfile, buildArgs },
      triggers: { content: this.version },
      timeouts: { create: timeLimit },
      dependsOn: dependsOn.length === 0 ? undefined : [...dependsOn],
      lifecycle: {
        createBeforeDestroy: true,
        ...(models.length > 0 && {
          precondition: servedTowers(models).flatMap((tower) =>
            towerFileConditions(tower, context, "fp32", projectFolder),
          ),
        }),
      },
    });
    // the provider's other builder uses the endpoint of the docker command line instead of the provider's `host`
    this.resource.addOverride("build.use_legacy_builder", true);
  }
}

/** Build arguments with the models of the image, none for the default models, and with their precision. */
function modelArguments(models: readonly ModelSpec[], precision?: ModelPrecision): BuildArgs {
  const MODELS = modelsArgument(models);
  return {
    ...(models.length > 0 && MODELS !== defaultModelsArgument && { MODELS }),
    ...(precision !== undefined && { MODEL_PRECISION: precision }),
  };
}

/** Tag of an image, or the start of its digest. */
function versionOf(image: string): string {
  return /@sha256:([0-9a-f]{12})/.exec(image)?.[1] ?? /:([^:/]+)$/.exec(image)?.[1] ?? "unknown";
}
