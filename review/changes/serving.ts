import type { ModelConfigJson } from "../../client/triton/model-config.ts";
import { tensorrtFile } from "../../contract/model-config.ts";
import { configOf, deployedConfigs, tensorrtOf } from "../facts/model-configs.ts";
import { serviceContainers } from "../facts/service-containers.ts";
import { environmentOf, releasesOf } from "../facts/workloads.ts";
import { type StackChange, stateBefore } from "../input/change.ts";
import { hasSecretPattern } from "../input/secrets.ts";
import { blockOf, isObject } from "../input/value-paths.ts";
import type { ImageNames } from "./diff-values.ts";

/** Image and model settings of a Triton server, before or after a change. */
export interface Serving {
  /** Tag and digest, as far as known. */
  readonly image: string;
  /** `1 on GPU 0` */
  readonly instances: string;
  readonly maxBatch?: number;
  /** `FP16, 1024 MiB of workspace`, with the file if TensorRT takes the precision from its graph; absent without TensorRT. */
  readonly tensorrt?: string;
}

export interface ServingChange {
  readonly service: string;
  /** Absent if it does not exist. */
  readonly before?: Serving;
  readonly after?: Serving;
}

/** Every Triton server of a stack before and after a change, by name. */
export function servingOf(change: StackChange, images: ImageNames): readonly ServingChange[] {
  const before = servingsIn(stateBefore(change), images.before);
  const after = servingsIn(change, images.after);
  return [...new Set([...before.keys(), ...after.keys()])]
    .sort()
    .map((service) => ({ service, before: before.get(service), after: after.get(service) }));
}

function servingsIn(
  change: StackChange,
  images: ReadonlyMap<string, string>,
): ReadonlyMap<string, Serving> {
  const found = new Map<string, Serving>();
  for (const { name, kind, resources: own } of environmentOf(change)?.services ?? []) {
    if (kind !== "triton") continue;
    const container = serviceContainers(change).find(({ address }) => address === own.container);
    const release = releasesOf(change).find(({ resource }) => resource.address === own.release);
    if (container !== undefined) {
      const deployed = configOf(change, container);
      const { values, resource } = container;
      const image =
        images.get(String(values.image)) ?? images.get(resource.imageResource ?? "") ?? "–";
      if (deployed !== undefined) found.set(name, { image, ...configured(deployed.config) });
    } else if (release !== undefined) {
      const deployed = deployedConfigs(change).find(({ address }) => address === own.release);
      const image = imageOf(blockOf(release.values, "triton"));
      if (deployed !== undefined) found.set(name, { image, ...configured(deployed.config) });
    }
  }
  return found;
}

/** `name:tag @ sha256:…`, from the values of this project's chart. */
function imageOf({ image }: Readonly<Record<string, unknown>>): string {
  if (!isObject(image)) return "–";
  const [repository, tag, digest] = [image.repository, image.tag, image.digest].map((part) =>
    typeof part === "string" && /^[\w.:/@-]{1,200}$/.test(part) && !hasSecretPattern(part)
      ? part
      : "",
  );
  const name = `${repository}${tag === "" ? "" : `:${tag}`}`;
  return digest === "" ? name || "–" : `${name} @ ${digest?.slice(0, 19)}`;
}

function configured(config: ModelConfigJson | undefined): Omit<Serving, "image"> {
  if (config === undefined) return { instances: "–" };
  const instances = config.instance_group.map(({ count, kind, gpus = [] }) => {
    if (kind === "KIND_CPU") return `${count || 1} on the CPU`;
    return gpus.length === 0 ? String(count || 1) : `${count || 1} on GPU ${gpus.join(", ")}`;
  });
  const parameters = tensorrtOf(config);
  const [mode = "FP32"] = /\b(FP32|FP16|BF16|INT8)\b/.exec(parameters?.precision_mode ?? "") ?? [];
  // TensorRT 11 ignores `precision_mode`
  const precision =
    config.default_model_filename === tensorrtFile ? `FP16 by ${tensorrtFile}` : mode;
  const workspace = Number(parameters?.max_workspace_size_bytes ?? Number.NaN);
  const memory = Number.isNaN(workspace)
    ? ""
    : `, ${Math.round(workspace / 2 ** 20)} MiB of workspace`;
  return {
    instances: instances.join("; ") || "1",
    maxBatch: config.max_batch_size,
    tensorrt: parameters && `${precision}${memory}`,
  };
}
