import { HelmProvider } from "@cdktf/provider-helm/lib/provider/index.js";
import { KubernetesProvider } from "@cdktf/provider-kubernetes/lib/provider/index.js";
import { Construct } from "constructs";
import { type GpuName, type GpuSpec, gpuCatalogue } from "../../contract/gpus.ts";
import { DataResource, TerraformStack } from "../cdktf.ts";
import type { Accelerator } from "../docker/gpu-host.ts";
import { type ClusterPlace, gpusOf } from "../environment-output.ts";
import { expression } from "../expression.ts";
import { ClusterCheck } from "./cluster-check.ts";
import type { ClusterRequirements } from "./cluster-requirements.ts";

/** A taint that pods on the GPU nodes accept. */
export interface Toleration {
  readonly key: string;
  readonly operator: "Equal" | "Exists";
  readonly value?: string;
  readonly effect?: "NoSchedule" | "PreferNoSchedule" | "NoExecute";
}

/** GPU nodes that are alike. */
export interface NodePool {
  /** Kind of GPU in each node. */
  readonly gpu: GpuName;
  readonly nodes: number;
  readonly gpusPerNode: number;
  /** RuntimeClass of pods that hold a GPU; `none` is what the nodes run pods with by default. */
  readonly runtimeClass: string;
  /** Labels of the nodes. */
  readonly selector: Readonly<Record<string, string>>;
  /** Taints of the nodes. */
  readonly tolerations: readonly Toleration[];
}

export interface GpuClusterProps {
  /** File with the context; `~` is the home folder. */
  readonly kubeconfig: string;
  /** Context of the kubeconfig: never the current one, which another command may have changed. */
  readonly context: string;
  /** What the services compute on. */
  readonly accelerator: Accelerator;
  /** Its GPU nodes. Not read when the accelerator is `cpu`. */
  readonly pool: NodePool;
}

/** What a namespace of the cluster is for. */
export type ClusterNeeds = Pick<
  ClusterRequirements,
  "namespace" | "createNamespace" | "apis" | "objects" | "serviceMonitor"
> & {
  /** GPUs of all pods at their maximum. */
  readonly gpus: number;
  /** GPUs of all pods at their minimum. */
  readonly gpusAtLeast: number;
};

/**
 * A Kubernetes cluster that is there already, reached through a context of a kubeconfig, with the providers that talk to it.
 *
 * A deployment stays with the context that it was made in: in another cluster Terraform would find nothing, make all of it
 * anew, and forget what runs in the first. Such a change is refused when a plan is made.
 */
export class GpuCluster extends Construct {
  readonly context: string;
  /** The kubeconfig, as a path that Terraform knows. */
  readonly kubeconfig: string;
  /** As the settings name it. */
  readonly kubeconfigFile: string;
  readonly accelerator: Accelerator;
  readonly pool: NodePool;
  readonly gpu: GpuSpec & { readonly name: GpuName };
  /** GPUs of all nodes. */
  readonly count: number;
  /** Keeps the context of the first deployment. */
  readonly place: DataResource;

  #needs: ClusterNeeds | undefined;

  constructor(scope: Construct, id: string, props: GpuClusterProps) {
    super(scope, id);

    this.context = props.context;
    this.kubeconfigFile = props.kubeconfig;
    this.kubeconfig = expression(`pathexpand("${props.kubeconfig}")`);
    this.accelerator = props.accelerator;
    this.pool = props.pool;
    this.gpu = { name: props.pool.gpu, ...gpuCatalogue[props.pool.gpu] };
    this.count = props.pool.nodes * props.pool.gpusPerNode;

    const check = new ClusterCheck(this, "check", {
      kubeconfig: props.kubeconfig,
      context: props.context,
      requirements: () => this.#requirements(),
    });
    this.place = new DataResource(this, "place", {
      input: { context: props.context },
      // a cluster that has not passed is none that anything is in
      dependsOn: [check.resource],
      lifecycle: {
        // the context of the first deployment stays in the state, also for the end of it
        ignoreChanges: ["input"],
        postcondition: [staysIn(TerraformStack.of(this).node.id, props.context)],
      },
    });
    const access = {
      configPath: check.configPath,
      configContext: expression(`${this.place.fqn}.input.context`),
    };
    new KubernetesProvider(this, "kubernetes", access);
    new HelmProvider(this, "helm", { kubernetes: access });
  }

  /** Have the cluster checked for this before anything is made in it. */
  needs(needs: ClusterNeeds): void {
    this.#needs = needs;
  }

  #requirements(): ClusterRequirements {
    if (this.#needs === undefined) throw new Error("nothing is deployed to the cluster");
    const { gpus, gpusAtLeast, ...others } = this.#needs;
    const { nodes, gpusPerNode, runtimeClass, selector, tolerations } = this.pool;
    return {
      schema: 1,
      environment: TerraformStack.of(this).node.id,
      kubeconfig: this.kubeconfigFile,
      context: this.context,
      ...others,
      ...(this.accelerator === "gpu" && {
        gpu: {
          label: this.gpu.label,
          vramMiB: this.gpu.vramMiB,
          nodes,
          gpusPerNode,
          gpus,
          gpusAtLeast,
          ...(runtimeClass !== "none" && { runtimeClass }),
          selector: { ...selector },
          tolerations: tolerations.map((toleration) => ({ ...toleration })),
        },
      }),
    };
  }

  /** Where the services of a namespace are, for the environment output. What its GPUs cost is what the whole pool does. */
  placeOf(namespace: string): ClusterPlace {
    const { context, kubeconfigFile: kubeconfig, accelerator, count } = this;
    return {
      context,
      kubeconfig,
      namespace,
      accelerator,
      ...(accelerator === "gpu" && { gpu: gpusOf(this.gpu, count) }),
    };
  }
}

/** The context that a deployment keeps for life. */
function staysIn(environment: string, context: string) {
  const first = "self.input.context";
  return {
    condition: expression(`${first} == "${context}"`),
    errorMessage: [
      `The environment is deployed to cluster.context '${expression(first)}', and the settings say '${context}': what runs in the first would be left behind.`,
      `Set it back, or take the deployment away first: 'npx cdktf destroy ${environment}', then deploy.`,
    ].join(" "),
  };
}
