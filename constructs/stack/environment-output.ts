import { Construct } from "constructs";
import {
  type Environment,
  environment,
  environmentOutput,
  environmentSchema,
  type Service,
} from "../../contract/environment.ts";
import type { GpuSpec } from "../../contract/gpus.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { check } from "../checks/findings.ts";
import { TerraformOutput, TerraformStack } from "../terraform/cdktf.ts";

/** GPU host on which services run, as `GpuHost` describes it. */
export interface HostLocation {
  /** Docker endpoint. */
  readonly docker: string;
  readonly accelerator: Environment["accelerator"];
  readonly gpu: GpuSpec & { readonly name: string };
  readonly count: number;
  /** MIG profile of the services' devices; undefined for whole GPUs. */
  readonly share?: string | undefined;
}

/** Location of services in a cluster. */
export interface ClusterLocation {
  /** Context of the kubeconfig. */
  readonly context: string;
  /** Path of the kubeconfig; `~` is the home folder. */
  readonly kubeconfig: string;
  readonly namespace: string;
  /**
   * Device that runs the models.
   *
   * @default "cpu"
   */
  readonly accelerator?: Environment["accelerator"];
  /**
   * GPUs of all nodes.
   *
   * @default - no GPUs
   */
  readonly gpu?: Environment["gpu"];
}

/** Service with the specs of the models that it serves. */
export interface ServiceEntry {
  readonly service: Service;
  readonly models: readonly ModelSpec[];
}

export interface EnvironmentOutputProps {
  /** `GpuHost` or cluster on which the services run. */
  readonly where: HostLocation | ClusterLocation;
  readonly services: readonly ServiceEntry[];
  /**
   * Addresses of the monitoring.
   *
   * @default - none
   */
  readonly monitoring?: Environment["monitoring"];
  /**
   * Name of the Terraform output. A stack with several hosts has one output per host.
   *
   * @default "environment" - the output that clipstack reads
   */
  readonly output?: string;
}

/** Terraform output with every endpoint of a host or cluster as one JSON value, which `verify`, `bench` and clients read. */
export class EnvironmentOutput extends Construct {
  readonly value: Environment;

  /** GPUs: number, model, memory of each and typical price of all; empty on the CPU. */
  get summary(): string {
    if (this.value.gpu === undefined) return "";
    const { name, count, vramMiB, usdPerHour, priceDate = "declared" } = this.value.gpu;
    const price = Number(usdPerHour.toFixed(2));
    return `${count} ${name} of ${vramMiB} MiB, ${price} $/hour (${priceDate})`;
  }

  constructor(scope: Construct, id: string, props: EnvironmentOutputProps) {
    super(scope, id);

    const { where, services, monitoring, output = environmentOutput } = props;

    this.value = {
      schema: environmentSchema,
      name: TerraformStack.of(this).node.id,
      ...("docker" in where ? hostLocation(where) : clusterLocation(where)),
      models: specsOf(services),
      services: services.map(({ service }) => service),
      ...(monitoring && { monitoring }),
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
    }).overrideLogicalId(output);
  }
}

/** Specs of all services, each once and without its sources. */
function specsOf(services: readonly ServiceEntry[]): ModelSpec[] {
  const specs = new Map(
    services.flatMap(({ models }) => models.map((spec) => [spec.name, spec] as const)),
  );
  return [...specs.values()].map((spec) => ({ ...spec, sources: {} }));
}

type Location = Pick<Environment, "where" | "kubeconfig" | "namespace" | "accelerator" | "gpu">;

function hostLocation({ docker, accelerator, gpu, count, share }: HostLocation): Location {
  if (accelerator === "cpu") return { where: docker, accelerator };
  return { where: docker, accelerator, gpu: gpusOf(gpu, count, share) };
}

function clusterLocation({ context, accelerator = "cpu", ...location }: ClusterLocation): Location {
  return { where: context, accelerator, ...location };
}

/** GPUs of one model with their total cost. */
export function gpusOf(
  { name, vramMiB, price, computeCapability, class: of, fp16DenseTflops }: HostLocation["gpu"],
  count: number,
  share?: string,
): Environment["gpu"] {
  return {
    name,
    count,
    vramMiB,
    ...(share !== undefined && { share }),
    usdPerHour: price.usdPerHour * count,
    // a price of the catalogue has a date
    ...(price.date === undefined
      ? { declared: { computeCapability, class: of, fp16DenseTflops } }
      : { priceDate: price.date }),
  };
}
