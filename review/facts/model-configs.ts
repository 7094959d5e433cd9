import {
  ModelConfigError,
  type ModelConfigJson,
  readModelConfig,
} from "../../client/triton/model-config.ts";
import { checkModelConfig } from "../../contract/model-config-check.ts";
import { catalogueSpecs } from "../../contract/models/index.ts";
import { precisionSourceOf } from "../../contract/triton-releases.ts";
import type { ResourceChange, StackChange } from "../input/change.ts";
import { withoutKey } from "../input/stack-facts.ts";
import { cached } from "./cached.ts";
import { type ServiceContainer, serviceContainers, volumesOf } from "./service-containers.ts";
import { imagesOf } from "./used-images.ts";
import { at, block, blocks, isExpression } from "./values.ts";
import { releasesOf, resourcesOf } from "./workloads.ts";

/** `config.pbtxt` written by a stack. */
export interface DeployedConfig {
  readonly address: string;
  readonly resource: ResourceChange;
  /** Absent if the text cannot be parsed. */
  readonly config?: ModelConfigJson;
  /** Parser error. */
  readonly problem?: string;
  /** Triton that reads it; absent in a cluster. */
  readonly container?: ServiceContainer;
}

/** Model configurations of a stack; Terraform expressions in them are replaced by a placeholder. */
export const deployedConfigs = cached((change: StackChange): readonly DeployedConfig[] => [
  ...hostConfigs(change),
  ...chartConfigs(change),
]);

function hostConfigs(change: StackChange): readonly DeployedConfig[] {
  const readers = new Map<unknown, ServiceContainer>();
  for (const container of serviceContainers(change)) {
    if (container.kind !== "triton") continue;
    for (const { name } of volumesOf(container.values)) {
      if (name !== undefined && !readers.has(name)) readers.set(name, container);
    }
  }
  return resourcesOf(change, "docker_container").flatMap((resource) =>
    blocks(resource.after?.upload)
      .filter(({ file }) => /\.pbtxt$/.test(String(file)))
      .flatMap(({ content }): DeployedConfig[] => {
        if (typeof content !== "string") return [];
        const container = volumesOf(resource.after ?? {})
          .map(({ name }) => readers.get(name))
          .find((reader) => reader !== undefined);
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

function chartConfigs(change: StackChange): readonly DeployedConfig[] {
  return releasesOf(change).flatMap(({ resource, values }) => {
    if (at(values, "triton", "enabled") === false) return [];
    const configs = block(at(values, "triton", "modelConfig"));
    // `text` in releases of earlier versions
    return [configs?.text, ...Object.values(block(configs?.texts) ?? {})].flatMap((content) =>
      typeof content !== "string" || content === ""
        ? []
        : [{ address: resource.address, resource, ...read(content) }],
    );
  });
}

type ReadConfig = Pick<DeployedConfig, "config" | "problem">;

/** Cache by text, because many Triton servers have the same configuration, before and after the change. */
const cachedConfigs = new Map<string, ReadConfig>();
const maxCachedConfigs = 100;

function read(content: string): ReadConfig {
  const before = cachedConfigs.get(content);
  if (before !== undefined) return before;
  const config = parseConfig(content);
  if (cachedConfigs.size >= maxCachedConfigs) cachedConfigs.clear();
  cachedConfigs.set(content, config);
  return config;
}

function parseConfig(content: string): ReadConfig {
  try {
    return { config: readModelConfig(content.replaceAll(/\$\{[^{}]*\}/g, "x"), "config.pbtxt") };
  } catch (error) {
    if (!(error instanceof ModelConfigError)) throw error;
    // an expression may stand for a value of any type
    return isExpression(content) ? {} : { problem: error.message };
  }
}

/** Violations of Triton's schema, and of its release if that is known; one message each. */
export function problemsOf(
  { address, config, container }: DeployedConfig,
  change: StackChange,
): readonly string[] {
  if (config === undefined) return [];
  const own = container?.resource.imageResource ?? address;
  const image = tritonImages(change).get(own);
  return checkModelConfig(config, {
    specs: catalogueSpecs,
    precision: image === undefined ? undefined : precisionSourceOf(image),
  });
}

/** Names of Triton images, by the address of the Docker image or the release. */
const tritonImages = cached(
  (change: StackChange): ReadonlyMap<string, string> =>
    new Map(
      imagesOf(change)
        .filter(({ triton }) => triton)
        .map(({ address, image }) => [withoutKey(address), image]),
    ),
);

const byContainer = cached(
  (change: StackChange): ReadonlyMap<string, DeployedConfig> =>
    new Map(
      deployedConfigs(change).flatMap((deployed) =>
        deployed.container === undefined ? [] : [[deployed.container.address, deployed] as const],
      ),
    ),
);

/** Configuration read by a Triton server on a host. */
export function configOf(
  change: StackChange,
  { address }: ServiceContainer,
): DeployedConfig | undefined {
  return byContainer(change).get(address);
}

/** Parameters of the TensorRT accelerator, if enabled. */
export function tensorrtOf(
  config: ModelConfigJson | undefined,
): Readonly<Record<string, string>> | undefined {
  const accelerators =
    config?.optimization?.execution_accelerators?.gpu_execution_accelerator ?? [];
  const tensorrt = accelerators.find(({ name }) => name === "tensorrt");
  return tensorrt === undefined ? undefined : (tensorrt.parameters ?? {});
}
