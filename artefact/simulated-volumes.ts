import { isAbsolute, join, normalize, posix } from "node:path";
import { modelRepositoryMount } from "../contract/server/server-env.ts";
import { nextModelName } from "../contract/triton-models.ts";
import type { RepositoryPart, RepositoryPlan, SimulationPlanOptions } from "./simulation-types.ts";
import { evaluatePath } from "./terraform-text.ts";
import { isBelow } from "./volume-contents.ts";
import type { Volume, Workload } from "./workload.ts";

/** Folders of this machine that simulate a container's volumes. */
export interface SimulatedVolumes {
  /** Path on this machine of a path in the container. */
  hostPath(containerPath: string): string;
  /** Volumes at or below a path of the container, outer ones first. */
  below(containerPath: string): readonly RepositoryPart[];
}

/** @param notes - Receives a note for each folder that the project's model repository replaces. */
export function simulatedVolumes(
  workload: Workload,
  options: SimulationPlanOptions,
  notes: Set<string>,
): SimulatedVolumes {
  const substitute = (reason: string, tail: string): string => {
    notes.add(`${workload.name}: ${reason}; the project's model repository is used instead`);
    return join(options.modelRepository, tail);
  };
  const inRepository = (containerPath: string): string =>
    posix.relative(modelRepositoryMount, containerPath);

  const sourceOf = ({ containerPath, hostPath }: Volume): string => {
    const tail = inRepository(containerPath);
    if (hostPath === undefined) {
      return substitute(`the volume at ${containerPath} is on another host`, tail);
    }
    const folder = evaluatePath(hostPath, options.moduleFolder);
    if (folder === undefined || !isAbsolute(folder)) {
      return substitute(`${hostPath} is known only to Terraform`, tail);
    }
    const path = normalize(folder);
    if (options.exists(path) || isBelow(path, options.modelRepository)) return path;
    // the same folder below another root
    const names = path.split(/[\\/]/);
    const same = names
      .map((_, i) => names.slice(i).join("/"))
      .find((end) => end !== "" && options.exists(join(options.modelRepository, end)));
    return substitute(`${path} is not on this machine`, same ?? tail);
  };

  return {
    hostPath(containerPath) {
      const volume = workload.volumes
        .filter((candidate) => isBelow(containerPath, candidate.containerPath))
        .sort((a, b) => b.containerPath.length - a.containerPath.length)[0];
      if (volume === undefined) {
        if (!isBelow(containerPath, modelRepositoryMount)) return containerPath;
        const reason = `no volume is mounted at ${containerPath}`;
        return substitute(reason, inRepository(containerPath));
      }
      return join(sourceOf(volume), posix.relative(volume.containerPath, containerPath));
    },
    below: (containerPath) =>
      workload.volumes
        .filter(
          (volume) =>
            isBelow(volume.containerPath, containerPath) &&
            !isForVersions(volume, workload.volumes),
        )
        .sort((a, b) => a.containerPath.length - b.containerPath.length)
        .map((volume): RepositoryPart => {
          const path = posix.relative(containerPath, volume.containerPath);
          // the artefact contains every file of such a volume
          return volume.contents !== undefined && volume.hostPath === undefined
            ? { path, files: volume.contents.files }
            : { path, source: sourceOf(volume) };
        }),
  };
}

/**
 * Returns whether a volume is for further versions of a model, which `clipstack model deploy` adds: version 1 is mounted in it, or in its
 * mount under the model's first name. It is empty when it is created.
 */
function isForVersions({ containerPath, hostPath, contents }: Volume, all: readonly Volume[]) {
  return (
    hostPath === undefined &&
    contents === undefined &&
    all.some((volume) => {
      const folder = posix.dirname(volume.containerPath);
      const isFirst = posix.basename(volume.containerPath) === "1";
      return isFirst && [folder, nextModelName(folder)].includes(containerPath);
    })
  );
}

/**
 * Plan of a mounted model repository; `undefined` if one volume contains all of it.
 *
 * @param mount - Path in the container.
 * @param models - Folders of the served models.
 * @param replacements - Files in place of their own.
 */
export function repositoryPlan(
  mount: string,
  models: readonly string[],
  volumes: SimulatedVolumes,
  folder: string,
  replacements: RepositoryPlan["replacements"],
): RepositoryPlan | undefined {
  const parts = volumes.below(mount);
  const isOneVolume = parts.length === 0 || (parts.length === 1 && parts[0]?.path === "");
  if (isOneVolume) {
    if (Object.keys(replacements).length === 0) return undefined;
    return {
      folder,
      parts: parts.length > 0 ? parts : [{ path: "", source: volumes.hostPath(mount) }],
      replacements,
    };
  }
  // a mounted configuration without weights: the image contains them
  const inImage = models.flatMap((model) => {
    const version = posix.join(model, "1");
    const hasWeights =
      replacements[model] !== undefined || parts.some(({ path }) => isBelow(version, path));
    if (hasWeights || !parts.some(({ path }) => isBelow(path, model))) return [];
    return [{ path: version, source: volumes.hostPath(posix.join(mount, version)) }];
  });
  return { folder, parts: [...parts, ...inImage], replacements };
}
