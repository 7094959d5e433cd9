import { PbtxtError } from "../../../inference-image/src/contract/pbtxt.ts";
import {
  type ModelConfigJson,
  readModelConfig,
} from "../../../inference-image/src/triton/model-config.ts";
import type { ResourceChange, StackChange } from "../change.ts";
import { cached } from "./cached.ts";
import {
  releasesOf,
  resourcesOf,
  type ServiceContainer,
  serviceContainers,
  volumesOf,
} from "./facts.ts";
import { at, blocks, isExpression, text } from "./values.ts";

/** A `config.pbtxt` that a stack writes, and who reads it. */
export interface DeployedConfig {
  readonly address: string;
  readonly resource: ResourceChange;
  /** Absent where the text cannot be read. */
  readonly config?: ModelConfigJson;
  /** Why it cannot be read. */
  readonly problem?: string;
  /** The Triton that reads it; absent in a cluster. */
  readonly container?: ServiceContainer;
}

/** Every model configuration of a stack. Of expressions in it only the place is known. */
export const deployedConfigs = cached((change: StackChange): readonly DeployedConfig[] => [
  ...ofHosts(change),
  ...ofCharts(change),
]);

function ofHosts(change: StackChange): readonly DeployedConfig[] {
  const tritons = serviceContainers(change).filter(({ kind }) => kind === "triton");
  return resourcesOf(change, "docker_container").flatMap((resource) =>
    blocks(resource.after?.upload)
      .filter(({ file }) => /\.pbtxt$/.test(String(file)))
      .flatMap(({ content }): DeployedConfig[] => {
        if (typeof content !== "string") return [];
        const written = volumesOf(resource.after ?? {}).map(({ name }) => name);
        const container = tritons.find(({ values }) =>
          volumesOf(values).some(({ name }) => name !== undefined && written.includes(name)),
        );
        return [
          {
            address: resource.address,
            resource,
            ...read(content),
            ...(container !== undefined && { container }),
          },
        ];
      }),
  );
}

function ofCharts(change: StackChange): readonly DeployedConfig[] {
  return releasesOf(change).flatMap(({ resource, values }) => {
    const content = text(at(values, "triton", "modelConfig", "text"));
    return content === undefined || content === "" || at(values, "triton", "enabled") === false
      ? []
      : [{ address: resource.address, resource, ...read(content) }];
  });
}

function read(content: string): Pick<DeployedConfig, "config" | "problem"> {
  try {
    return { config: readModelConfig(content.replaceAll(/\$\{[^{}]*\}/g, "x"), "config.pbtxt") };
  } catch (error) {
    if (!(error instanceof PbtxtError)) throw error;
    // an expression may hold what the text format does not know
    return isExpression(content) ? {} : { problem: error.message };
  }
}

/** Parameters of the TensorRT accelerator of a configuration. */
export function tensorrtOf(
  config: ModelConfigJson | undefined,
): Readonly<Record<string, string>> | undefined {
  const accelerators =
    config?.optimization?.execution_accelerators?.gpu_execution_accelerator ?? [];
  const tensorrt = accelerators.find(({ name }) => name === "tensorrt");
  return tensorrt === undefined ? undefined : (tensorrt.parameters ?? {});
}
