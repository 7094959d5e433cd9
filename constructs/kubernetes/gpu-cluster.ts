import { Construct } from "constructs";
import { z } from "zod";
import { HelmProvider } from "#providers/helm/lib/provider/index.js";
import { KubernetesProvider } from "#providers/kubernetes/lib/provider/index.js";
import {
  type GpuModel,
  type GpuSpec,
  gpuModel,
  gpuNames,
  gpuResource,
  gpuSpec,
  maxGpus,
  migMemoryMiB,
} from "../../contract/gpus.ts";
import { integer } from "../../contract/value-types.ts";
import { accelerator } from "../checks/prop-types.ts";
import { checkedProps } from "../checks/props.ts";
import type { Accelerator } from "../docker/host-plan.ts";
import { type ClusterLocation, gpusOf } from "../stack/environment-output.ts";
import { DataResource, TerraformStack } from "../terraform/cdktf.ts";
import type { RunsClipstack } from "../terraform/clipstack-command.ts";
import { expression } from "../terraform/expression.ts";
import type { ClusterAccess } from "./cluster-access.ts";
import { ClusterCheck } from "./cluster-check.ts";
import type { ClusterRequirements } from "./cluster-requirements.ts";

/** Toleration of a taint of the GPU nodes. */
export interface Toleration {
  readonly key: string;
  readonly operator: "Equal" | "Exists";
  /** @default - none, with the operator `Exists` */
  readonly value?: string;
  /** @default - every effect */
  readonly effect?: "NoSchedule" | "PreferNoSchedule" | "NoExecute";
}

/** Identical GPU nodes. */
export interface NodePool {
  /** GPU model of every node: a name of the catalogue, or the facts of another one. */
  readonly gpu: GpuModel;
  readonly nodes: number;
  readonly gpusPerNode: number;
  /** Resource that a pod requests: whole GPUs, MIG devices or time-sliced GPUs. @default "nvidia.com/gpu" */
  readonly resourceName?: string;
  /** Number of these resources per GPU. @default 1 */
  readonly devicesPerGpu?: number;
  /** RuntimeClass of pods that use a GPU; `none` is the default runtime of the nodes. */
  readonly runtimeClass: string;
  /** Labels of the nodes. */
  readonly selector: Readonly<Record<string, string>>;
  /** Taints of the nodes. */
  readonly tolerations: readonly Toleration[];
}

export interface GpuClusterProps extends RunsClipstack {
  /** Path of the kubeconfig; `~` is the home folder. */
  readonly kubeconfig: string;
  /** Context of the kubeconfig. The current context is never used, because another command may change it. */
  readonly context: string;
  /** Device that runs the models. */
  readonly accelerator: Accelerator;
  /** GPU nodes of the cluster. Ignored if the accelerator is `cpu`. */
  readonly pool: NodePool;
}

/** Requirements of the services of one namespace. */
export type NamespaceRequirements = Pick<
  ClusterRequirements,
  "namespace" | "createNamespace" | "apis" | "objects" | "serviceMonitor"
> & {
  /** GPUs of all pods at their maximum. */
  readonly gpus: number;
  /** GPUs of all pods at their minimum. */
  readonly gpusAtLeast: number;
};

/**
 * Existing Kubernetes cluster with GPU nodes, with the Kubernetes and Helm providers configured for it.
 *
 * The context of a deployment cannot change: Terraform would recreate everything in the other cluster and lose track of
 * the first. A plan with such a change fails.
 */
export class GpuCluster extends Construct implements ClusterAccess {
  readonly context: string;
  /** Absolute path of the kubeconfig, as a Terraform expression. */
  readonly kubeconfig: string;
  /** Path of the kubeconfig as in the props. */
  readonly kubeconfigFile: string;
  readonly command?: string;
  readonly accelerator: Accelerator;
  readonly pool: NodePool;
  readonly gpu: GpuSpec & { readonly name: string };
  /** Number of GPUs of all nodes. */
  readonly count: number;
  readonly resourceName: string;
  /** Number of resources with that name per node. */
  readonly devicesPerNode: number;
  /** Whether a pod has a part of a GPU. */
  readonly sharesGpus: boolean;
  /** Context of the first deployment, kept in the state. */
  readonly resource: DataResource;

  #required: NamespaceRequirements | undefined;

  constructor(scope: Construct, id: string, given: GpuClusterProps) {
    super(scope, id);

    const pool = z.looseObject({
      gpu: gpuModel,
      nodes: integer(1, 1_000),
      gpusPerNode: integer(1, maxGpus),
      devicesPerGpu: integer(1, 48).optional(),
    });
    const props = checkedProps(
      this,
      given,
      { accelerator, pool },
      { accelerator: "gpu", pool: { ...given.pool, ...poolStandIns } },
    );

    this.context = props.context;
    this.kubeconfigFile = props.kubeconfig;
    this.command = props.command;
    this.kubeconfig = expression(`pathexpand("${props.kubeconfig}")`);
    this.accelerator = props.accelerator;
    this.pool = props.pool;
    this.gpu = gpuSpec(props.pool.gpu);
    const { nodes, gpusPerNode, resourceName = gpuResource, devicesPerGpu = 1 } = props.pool;
    this.count = nodes * gpusPerNode;
    this.resourceName = resourceName;
    this.devicesPerNode = gpusPerNode * devicesPerGpu;
    this.sharesGpus = resourceName !== gpuResource || devicesPerGpu > 1;

    const check = new ClusterCheck(this, "check", {
      kubeconfig: props.kubeconfig,
      context: props.context,
      command: props.command,
      requirements: () => this.#requirements(),
    });
    this.resource = new DataResource(this, "context", {
      input: { context: props.context },
      // nothing is deployed to a cluster that fails the check
      dependsOn: [check.resource],
      lifecycle: {
        // the state keeps the context of the first deployment, also for its destruction
        ignoreChanges: ["input"],
        postcondition: [sameContext(TerraformStack.of(this).node.id, props.context)],
      },
    });
    const access = {
      configPath: check.configPath,
      configContext: expression(`${this.resource.fqn}.input.context`),
    };
    new KubernetesProvider(this, "kubernetes", access);
    new HelmProvider(this, "helm", { kubernetes: access });
  }

  /** Memory of one device; of a time-sliced GPU, an equal part. */
  get deviceMiB(): number {
    const part = Math.floor(this.gpu.vramMiB / (this.pool.devicesPerGpu ?? 1));
    return Math.min(part, migMemoryMiB(this.resourceName) ?? part);
  }

  /** Sets the requirements that the check verifies before objects are created. */
  setRequirements(requirements: NamespaceRequirements): void {
    this.#required = requirements;
  }

  #requirements(): ClusterRequirements {
    if (this.#required === undefined) throw new Error("nothing is deployed to the cluster");
    const { gpus, gpusAtLeast, ...others } = this.#required;
    const { nodes, runtimeClass, selector, tolerations } = this.pool;
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
          gpusPerNode: this.devicesPerNode,
          ...(this.sharesGpus && { resourceName: this.resourceName }),
          gpus,
          gpusAtLeast,
          ...(runtimeClass !== "none" && { runtimeClass }),
          selector: { ...selector },
          tolerations: tolerations.map((toleration) => ({ ...toleration })),
        },
      }),
    };
  }

  /** Location of the services of a namespace, for the environment output. The cost is that of the whole pool. */
  locationOf(namespace: string): ClusterLocation {
    const { context, kubeconfigFile: kubeconfig, accelerator, count } = this;
    const share = this.sharesGpus ? this.resourceName : undefined;
    return {
      context,
      kubeconfig,
      namespace,
      accelerator,
      ...(accelerator === "gpu" && { gpu: gpusOf(this.gpu, count, share) }),
    };
  }
}

const poolStandIns = { gpu: gpuNames[0], nodes: 1_000, gpusPerNode: maxGpus, devicesPerGpu: 1 };

/** Postcondition: the context of the first deployment. */
function sameContext(environment: string, context: string) {
  const first = "self.input.context";
  return {
    condition: expression(`${first} == "${context}"`),
    errorMessage: [
      `cluster.context of a deployed environment cannot change: it is deployed to '${expression(first)}', got '${context}'.`,
      `Restore the setting, or destroy the deployment first: 'npx cdktf destroy ${environment}', then deploy.`,
    ].join(" "),
  };
}
