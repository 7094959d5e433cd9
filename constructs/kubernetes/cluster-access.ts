import type { TerraformResource } from "../terraform/cdktf.ts";
import type { RunsClipstack } from "../terraform/clipstack-command.ts";

/** Access to a Kubernetes cluster. The stack configures the Kubernetes and Helm providers for the same cluster. */
export interface ClusterAccess extends RunsClipstack {
  /** Path of the kubeconfig, absolute or a Terraform expression. */
  readonly kubeconfig: string;
  /** Context of the kubeconfig. */
  readonly context: string;
  /**
   * Resource that creates the cluster; objects in the cluster depend on it.
   *
   * @default - the cluster exists
   */
  readonly resource?: TerraformResource;
  /**
   * NodePorts that are reachable on this machine's loopback interface.
   *
   * @default - none
   */
  readonly portMappings?: readonly PortMapping[];
}

/** NodePort of a cluster and the port of this machine that leads to it. */
export interface PortMapping {
  readonly nodePort: number;
  readonly hostPort: number;
}

/** Reference to a container image. */
export interface ImageReference {
  /** Name with a tag or digest, as the cluster pulls it. */
  readonly name: string;
  /**
   * Annotations of the pods that run the image. A changed annotation starts a rolling update.
   *
   * @default - none
   */
  readonly annotations?: Readonly<Record<string, string>>;
  /**
   * Resource that puts the image into the cluster; pods depend on it.
   *
   * @default - the cluster pulls the image
   */
  readonly resource?: TerraformResource;
}
