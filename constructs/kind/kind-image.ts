import { Construct } from "constructs";
import { DataDockerImage } from "#providers/docker/lib/data-docker-image/index.js";
import { defaultModels } from "../../contract/models/index.ts";
import { check } from "../checks/findings.ts";
import { imageFindings } from "../checks/images.ts";
import { type BuiltImageSource, ServerImage, weightsIn } from "../docker/server-image.ts";
import type { ImageReference } from "../kubernetes/cluster-access.ts";
import { servedTowers } from "../models/served-towers.ts";
import { weightsDiskMiB } from "../models/weights-file.ts";
import { DataResource, type TerraformResource } from "../terraform/cdktf.ts";
import { expression } from "../terraform/expression.ts";
import type { KindCluster } from "./kind-cluster.ts";

/** Source of the image of a kind cluster. Nothing is pulled. */
export type KindImageSource =
  /** Build on this machine. The image must contain the weights. */
  | BuiltImageSource
  /** Existing image of the Docker engine on this machine. */
  | { readonly source: "local"; readonly name: string };

export interface KindImageProps {
  readonly cluster: KindCluster;
  readonly source: KindImageSource;
}

/** Disk space of the image with the default model in Docker's data folder, in MiB: the build and the copy in the node. */
const imageMiB = 4_096;
/** Copies of the weights in that space: two layers of the build and the copy in the node. */
const weightsCopies = 3;
const defaultWeightsMiB = servedTowers(defaultModels).reduce(
  (sum, tower) => sum + weightsDiskMiB(tower),
  0,
);

/** Image with the weights, loaded into the nodes of a kind cluster. A changed image is loaded again. */
export class KindImage extends Construct implements ImageReference {
  /** Name in the nodes. For a built image, an expression known at plan time. */
  readonly name: string;
  /**
   * Id of an existing image, because its name may stay the same. As an annotation of the pods it starts a rolling update
   * when the image changes.
   */
  readonly annotations: Readonly<Record<string, string>>;
  /** The copy in the nodes; pods depend on it. */
  readonly resource: DataResource;

  constructor(scope: Construct, id: string, { cluster, source }: KindImageProps) {
    super(scope, id);

    let built: TerraformResource | undefined;
    if (source.source === "local") {
      check(this, () => imageFindings(source.name));
      cluster.requireImage({ existing: source.name });
      const existing = new DataDockerImage(this, "local", {
        name: source.name,
        // the check reports a missing image with its fix
        dependsOn: [cluster.check.resource],
      });
      this.name = source.name;
      this.annotations = { "clipstack/image-id": expression(`${existing.fqn}.id`) };
    } else {
      const { files, miB } = weightsIn(source);
      const additionalMiB = weightsCopies * Math.max(0, miB - defaultWeightsMiB);
      cluster.requireImage({
        disk: [{ what: "the embed image", miB: imageMiB + additionalMiB }],
        files: files.map(({ path, what }) => ({ path, on: "here", what })),
      });
      const image = new ServerImage(this, "image", {
        source,
        // a cluster that cannot be created is reported before minutes of building
        dependsOn: [cluster.resource],
      });
      this.name = image.name;
      this.annotations = {};
      built = image.resource;
    }
    this.resource = new DataResource(this, "loaded", {
      triggersReplace: {
        cluster: expression(`${cluster.resource.fqn}.id`),
        image: this.name,
        ...this.annotations,
      },
      dependsOn: built === undefined ? undefined : [built],
      provisioners: [
        {
          type: "local-exec",
          command: 'kind load docker-image --name "$NAME" "$IMAGE"',
          environment: { NAME: cluster.name, IMAGE: this.name },
        },
      ],
    });
  }
}
