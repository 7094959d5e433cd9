import { DataDockerImage } from "@cdktf/provider-docker/lib/data-docker-image/index.js";
import { Construct } from "constructs";
import { DataResource, type TerraformResource } from "../cdktf.ts";
import { check } from "../checks/findings.ts";
import { imageFindings } from "../checks/images.ts";
import { type BuildArgs, ServerImage } from "../docker/server-image.ts";
import { weightsFile, weightsFolder } from "../docker/weights-file.ts";
import { expression } from "../expression.ts";
import type { KindCluster } from "./kind-cluster.ts";

/** Where the image of a kind cluster comes from. Nothing is pulled. */
export type KindImageSource =
  /** The project: this machine's Docker builds it, with the weights in it. */
  | { readonly source: "build"; readonly buildArgs?: BuildArgs }
  /** One that this machine's Docker has. */
  | { readonly source: "local"; readonly name: string };

export interface KindImageProps {
  readonly cluster: KindCluster;
  readonly source: KindImageSource;
}

/** Room of the image in Docker's folder, in MiB: what the build leaves, and the copy in the node. */
const imageMiB = 4_096;

/** The embed image with its weights, in the nodes of a kind cluster. Another image is another copy. */
export class KindImage extends Construct {
  /** Name in the nodes. Of a built image an expression, which is known when a plan is made. */
  readonly name: string;
  /**
   * Of an image that somebody else built: what it is, since its name may stay. An annotation of the pods, so that another
   * image under the same name is a rolling update.
   */
  readonly annotations: Readonly<Record<string, string>>;
  /** The copy. Pods depend on it. */
  readonly resource: DataResource;

  constructor(scope: Construct, id: string, { cluster, source }: KindImageProps) {
    super(scope, id);

    let built: TerraformResource | undefined;
    if (source.source === "local") {
      check(this, () => imageFindings(source.name));
      cluster.requireImage({ existing: source.name });
      const found = new DataDockerImage(this, "local", {
        name: source.name,
        // one that is not there is said in plain words first
        dependsOn: [cluster.check.resource],
      });
      this.name = source.name;
      this.annotations = { "clipstack/image-id": expression(`${found.fqn}.id`) };
    } else {
      cluster.requireImage({
        disk: [{ what: "the embed image", miB: imageMiB }],
        files: [
          {
            path: `model_repository/${weightsFolder}/${weightsFile}`,
            on: "here",
            what: "the file with the weights",
          },
        ],
      });
      const image = new ServerImage(this, "image", {
        kind: "embed-k8s-cpu",
        source,
        weights: true,
        // a cluster that cannot be made is said before minutes of building
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
