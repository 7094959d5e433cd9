import type { StackChange } from "../input/change.ts";
import { at, block, blocks, isExpression, isMissing, text } from "./values.ts";
import { podOf, podOwnersOf, releasesOf, resourcesOf } from "./workloads.ts";

/** Image of a resource. */
export interface UsedImage {
  readonly address: string;
  readonly image: string;
  /** Absent on Docker. */
  readonly pullPolicy?: string;
  /** Whether it contains Triton, as far as known. */
  readonly triton: boolean;
}

/** Images pulled from a registry, not those built by the project or given as Docker image ids. */
export function imagesOf(change: StackChange): readonly UsedImage[] {
  const docker = resourcesOf(change, "docker_image")
    .filter((resource) => isMissing(resource, "build"))
    .flatMap(({ address, after }) => image(address, after?.name));
  const direct = resourcesOf(change, "docker_container")
    .filter(({ after }) => !/^sha256:/.test(String(after?.image ?? "")))
    .flatMap(({ address, after }) => image(address, after?.image))
    .filter(({ image }) => !docker.some((other) => other.image === image))
    // built by the project
    .filter(({ image }) => !image.startsWith("clipstack/"));
  const owners = [...podOwnersOf(change), ...resourcesOf(change, "kubernetes_job")];
  const pods = owners.flatMap((resource) =>
    ["init_container", "container"]
      .flatMap((it) => blocks(podOf(resource).pod[it]))
      .flatMap((container) =>
        image(resource.address, container.image, text(container.image_pull_policy)),
      ),
  );
  const charts = releasesOf(change).flatMap(({ address, values }) =>
    ["embed", "triton"].flatMap((component) => {
      const part = block(values[component]);
      const repository = text(at(part, "image", "repository"));
      if (part === undefined || part.enabled === false || repository === undefined) return [];
      // built by the project: only Terraform knows the version
      if (isExpression(at(part, "image", "tag"))) return [];
      const [tag, digest] = [text(at(part, "image", "tag")), text(at(part, "image", "digest"))];
      const version = digest ? `@${digest}` : tag ? `:${tag}` : "";
      const policy = text(at(part, "image", "pullPolicy"));
      return image(address, `${repository}${version}`, policy, component === "triton");
    }),
  );
  return [...docker, ...direct, ...pods, ...charts];
}

function image(
  address: string,
  name: unknown,
  pullPolicy?: string,
  triton?: boolean,
): readonly UsedImage[] {
  const image = text(name);
  if (image === undefined) return [];
  const isTriton = triton ?? /tritonserver|\/triton[:@]/.test(image);
  return [{ address, image, triton: isTriton, ...(pullPolicy !== undefined && { pullPolicy }) }];
}
