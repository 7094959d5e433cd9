import type { ResourceChange } from "./change.ts";
import { chartDocuments } from "./chart-values.ts";
import type { StackMoments } from "./consequences.ts";
import { fieldsOf, isModelConfig } from "./diff-pbtxt.ts";
import type { ImageNames } from "./diff-values.ts";
import { hasSecretForm } from "./secrets.ts";
import type { StackFacts } from "./stack-facts.ts";
import { blocksOf, isObject } from "./value-paths.ts";

/** What a Triton of an environment runs, at one moment. */
export interface Serving {
  /** Tag and digest, as far as they are known. */
  readonly image: string;
  /** `1 on GPU 0` */
  readonly instances: string;
  readonly maxBatch?: number;
  /** `FP16, 1024 MiB of workspace`; absent where TensorRT is not used. */
  readonly tensorrt?: string;
}

export interface ServingChange {
  readonly service: string;
  /** Absent: it is not there then. */
  readonly before?: Serving;
  readonly after?: Serving;
}

/** Every Triton of a stack before and after a change, by name. */
export function servingOf(stack: StackMoments, images: ImageNames): readonly ServingChange[] {
  const [before, after] = [
    servingsIn(stack.before, stack.change.resources, images.before),
    servingsIn(stack.after, stack.change.resources, images.after),
  ];
  return [...new Set([...before.keys(), ...after.keys()])].sort().map((service) => {
    const [was, is] = [before.get(service), after.get(service)];
    return {
      service,
      ...(was === undefined ? {} : { before: was }),
      ...(is === undefined ? {} : { after: is }),
    };
  });
}

function servingsIn(
  facts: StackFacts,
  resources: readonly ResourceChange[],
  images: ReadonlyMap<string, string>,
): ReadonlyMap<string, Serving> {
  const found = new Map<string, Serving>();
  for (const { name, kind, resources: own } of facts.environment?.services ?? []) {
    if (kind !== "triton") continue;
    const container = facts.values.get(own.container ?? "")?.values;
    const release = facts.values.get(own.release ?? "")?.values;
    if (container !== undefined) {
      const text = writtenFor(container.volumes, facts);
      const { imageResource = "" } = resources.find((it) => it.address === own.container) ?? {};
      const image = images.get(String(container.image)) ?? images.get(imageResource) ?? "–";
      if (text !== undefined) found.set(name, { image, ...configured(text) });
    } else if (release !== undefined) {
      const triton = chartDocuments(release.values)?.triton;
      if (!isObject(triton) || !isObject(triton.modelConfig)) continue;
      const text = String(triton.modelConfig.text ?? "");
      if (isModelConfig(text)) found.set(name, { image: imageOf(triton), ...configured(text) });
    }
  }
  return found;
}

/** The configuration that a step of the deployment writes to a volume of a container. */
function writtenFor(volumes: unknown, facts: StackFacts): string | undefined {
  const own = new Set(blocksOf(volumes).map(({ volume_name: name }) => name));
  own.delete("");
  for (const { type, values } of facts.values.values()) {
    if (type !== "docker_container" || values.upload === undefined) continue;
    if (!blocksOf(values.volumes).some(({ volume_name: name }) => name && own.has(name))) continue;
    const text = blocksOf(values.upload)
      .map(({ content }) => content)
      .find((content) => typeof content === "string" && isModelConfig(content));
    if (typeof text === "string") return text;
  }
  return undefined;
}

/** `name:tag @ sha256:…`, from the values of this project's chart. */
function imageOf({ image }: Readonly<Record<string, unknown>>): string {
  if (!isObject(image)) return "–";
  const [repository, tag, digest] = [image.repository, image.tag, image.digest].map((part) =>
    typeof part === "string" && /^[\w.:/@-]{1,200}$/.test(part) && !hasSecretForm(part) ? part : "",
  );
  const name = `${repository}${tag === "" ? "" : `:${tag}`}`;
  return digest === "" ? name || "–" : `${name} @ ${digest?.slice(0, 19)}`;
}

function configured(text: string): Omit<Serving, "image"> {
  const fields = fieldsOf(text) ?? new Map<string, string>();
  const groups = [...fields].flatMap(([path, value]) => {
    const [, group = "", field] =
      /^instance_group(\[[^\]]*\])?\.(count|kind|gpus)$/.exec(path) ?? [];
    return field === undefined ? [] : [{ group, field, value }];
  });
  const names = [...new Set(groups.map(({ group }) => group))];
  const instances = names.map((name) => {
    const of = (field: string) =>
      groups.find((it) => it.group === name && it.field === field)?.value ?? "";
    const count = number(of("count")) ?? 1;
    const gpus = [...of("gpus").matchAll(/\d{1,3}/g)].map(String).join(", ");
    if (of("kind") === "KIND_CPU") return `${count} on the CPU`;
    return gpus === "" ? String(count) : `${count} on GPU ${gpus}`;
  });
  const maxBatch = number(fields.get("max_batch_size"));
  const parameter = (name: string) =>
    [...fields].find(
      ([path]) => path.includes("[tensorrt]") && path.endsWith(`.parameters[${name}]`),
    )?.[1];
  const uses = [...fields.keys()].some((path) =>
    path.includes("gpu_execution_accelerator[tensorrt]"),
  );
  const [precision] = /\b(FP32|FP16|BF16|INT8)\b/.exec(parameter("precision_mode") ?? "") ?? [];
  const workspace = number(parameter("max_workspace_size_bytes"));
  const parts = [
    precision ?? "FP32",
    ...(workspace === undefined ? [] : [`${Math.round(workspace / 2 ** 20)} MiB of workspace`]),
  ];
  return {
    instances: instances.join("; ") || "1",
    ...(maxBatch === undefined ? {} : { maxBatch }),
    ...(uses ? { tensorrt: parts.join(", ") } : {}),
  };
}

function number(text: string | undefined): number | undefined {
  const [digits] = /^"?(\d{1,15})"?$/.exec(text ?? "")?.slice(1) ?? [];
  return digits === undefined ? undefined : Number(digits);
}
