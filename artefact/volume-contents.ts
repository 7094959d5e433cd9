import { posix } from "node:path";
import { parseArgs } from "node:util";
import type { DeclaredContainer } from "./declared-container.ts";

/** Known contents of a named volume, put there by containers that run to completion before the services start. */
export interface VolumeContents {
  /** Folder from which the files of the volume come, as the artefact names it; absent if no file comes from a folder. */
  readonly folder?: string;
  /** Text files from the artefact, by path in the volume. */
  readonly files: Readonly<Record<string, string>>;
  /** Terraform addresses of the containers that fill the volume. */
  readonly filledBy: readonly string[];
  /** Requests to reload a model configuration: the URL of the Triton server, and the Terraform address of the sender. */
  readonly reloads: readonly { readonly by: string; readonly url: string }[];
}

/**
 * Known contents of named volumes, by volume name: files that the containers upload, and model
 * configurations that the `apply-config` job writes.
 */
export function volumeContents(
  containers: readonly { readonly address: string; readonly declared: DeclaredContainer }[],
): ReadonlyMap<string, VolumeContents> {
  const found = new Map<string, VolumeContents>();
  for (const { address, declared } of containers) {
    const add = (path: string, more: (below: string) => Partial<VolumeContents>): void => {
      const volume = declared.volumes.find(({ container_path: at }) => isBelow(path, at));
      if (volume?.volume_name === undefined) return;
      const before = found.get(volume.volume_name) ?? { files: {}, filledBy: [], reloads: [] };
      const { files, reloads, ...rest } = more(posix.relative(volume.container_path, path));
      found.set(volume.volume_name, {
        ...before,
        ...rest,
        files: { ...before.files, ...files },
        reloads: [...before.reloads, ...(reloads ?? [])],
        filledBy: [...new Set([...before.filledBy, address])],
      });
    };
    for (const { file, content, source } of declared.upload) {
      if (source !== undefined && posix.basename(source) === posix.basename(file)) {
        add(file, () => ({ folder: posix.dirname(source) }));
      } else if (content !== undefined && !isExpression(content)) {
        add(file, (below) => ({ files: { [below]: content } }));
      }
    }
    const applied = appliedConfig(declared);
    if (applied === undefined) continue;
    add(applied.path, (below) => ({
      files: { [below]: applied.content },
      reloads: applied.server === undefined ? [] : [{ by: address, url: applied.server }],
    }));
  }
  return found;
}

/** File that `apply-config` writes; `undefined` for other commands, or if nothing was uploaded for it. */
function appliedConfig({
  command: [role, ...args],
  upload,
}: DeclaredContainer):
  | { readonly path: string; readonly content: string; readonly server?: string }
  | undefined {
  if (role !== "apply-config") return undefined;
  const option = { type: "string" } as const;
  const { folder, file, name, server } = parseArgs({
    args,
    strict: false,
    options: { folder: option, file: option, name: option, server: option },
  }).values as Readonly<Record<string, string | undefined>>;
  const content = upload.find((uploaded) => uploaded.file === file)?.content;
  if (folder === undefined || name === undefined || content === undefined) return undefined;
  return { path: posix.join(folder, `${name}.pbtxt`), content, server };
}

function isExpression(value: string): boolean {
  return /^\$\{.*\}$/s.test(value);
}

/** Returns whether a path is a folder or below it. */
export function isBelow(path: string, folder: string): boolean {
  const relative = posix.relative(folder, path);
  return relative === "" || !relative.startsWith("..");
}
