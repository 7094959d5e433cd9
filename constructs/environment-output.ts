import { Construct } from "constructs";
import {
  type Environment,
  environment,
  environmentOutput,
  type Service,
} from "../inference-image/src/contract/environment.ts";
import { TerraformOutput, TerraformStack } from "./cdktf.ts";
import { check } from "./checks/findings.ts";
import { GpuHost } from "./gpu-host.ts";
import type { KindCluster } from "./kind-cluster.ts";

export interface EnvironmentOutputProps {
  /** What the services run on: a GPU host, or a cluster without GPUs. */
  readonly where: GpuHost | KindCluster;
  readonly services: readonly { readonly service: Service }[];
}

/** The output `environment`: every endpoint as one JSON value, which `verify`, `bench` and clients read. */
export class EnvironmentOutput extends Construct {
  readonly value: Environment;

  constructor(scope: Construct, id: string, { where, services }: EnvironmentOutputProps) {
    super(scope, id);

    const onHost = where instanceof GpuHost;
    this.value = {
      schema: 1,
      name: TerraformStack.of(this).node.id,
      where: onHost ? where.docker : where.context,
      accelerator: onHost ? where.accelerator : "cpu",
      gpu:
        onHost && where.accelerator === "gpu"
          ? {
              name: where.gpu.name,
              count: where.count,
              vramMiB: where.gpu.vramMiB,
              usdPerHour: where.gpu.price.usdPerHour * where.count,
              priceDate: where.gpu.price.date,
            }
          : undefined,
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
      description:
        "Every endpoint of the environment (inference-image/src/contract/environment.ts).",
    }).overrideLogicalId(environmentOutput);
  }
}
