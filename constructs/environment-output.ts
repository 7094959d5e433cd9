import { Construct } from "constructs";
import {
  type Environment,
  environment,
  environmentOutput,
  environmentSchema,
  type Service,
} from "../contract/environment.ts";
import { TerraformOutput, TerraformStack } from "./cdktf.ts";
import { check } from "./checks/findings.ts";
import { GpuHost } from "./docker/gpu-host.ts";

/** Where in a cluster the services are, for programs that ask it. */
export interface ClusterPlace {
  /** Context of the kubeconfig. */
  readonly context: string;
  /** As the settings name it: `~` is the home folder. */
  readonly kubeconfig: string;
  readonly namespace: string;
  /** @default "cpu" */
  readonly accelerator?: Environment["accelerator"];
  readonly gpu?: Environment["gpu"];
}

export interface EnvironmentOutputProps {
  /** What the services run on: a GPU host, or a cluster. */
  readonly where: GpuHost | ClusterPlace;
  readonly services: readonly { readonly service: Service }[];
}

/** The output `environment`: every endpoint as one JSON value, which `verify`, `bench` and clients read. */
export class EnvironmentOutput extends Construct {
  readonly value: Environment;

  constructor(scope: Construct, id: string, { where, services }: EnvironmentOutputProps) {
    super(scope, id);

    this.value = {
      schema: environmentSchema,
      name: TerraformStack.of(this).node.id,
      ...(where instanceof GpuHost ? ofHost(where) : ofCluster(where)),
      services: services.map(({ service }) => service),
    };

    check(this, () => {
      const result = environment.safeParse(this.value);
      return result.success
        ? []
        : result.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`);
    });
    new TerraformOutput(this, "output", {
      value: this.value,
      description: "Every endpoint of the environment (contract/environment.ts).",
    }).overrideLogicalId(environmentOutput);
  }
}

type Place = Pick<Environment, "where" | "kubeconfig" | "namespace" | "accelerator" | "gpu">;

function ofHost({ docker, accelerator, gpu, count }: GpuHost): Place {
  if (accelerator === "cpu") return { where: docker, accelerator };
  return { where: docker, accelerator, gpu: gpusOf(gpu, count) };
}

function ofCluster({ context, accelerator = "cpu", ...place }: ClusterPlace): Place {
  return { where: context, accelerator, ...place };
}

/** GPUs of one kind, and what all of them cost. */
export function gpusOf(
  { name, vramMiB, price }: GpuHost["gpu"],
  count: number,
): Environment["gpu"] {
  return {
    name,
    count,
    vramMiB,
    usdPerHour: price.usdPerHour * count,
    priceDate: price.date,
  };
}
