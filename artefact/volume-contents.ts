import { posix } from "node:path";
import { parseArgs } from "node:util";
import type { DeclaredContainer } from "./declared-container.ts";

/** What a named volume of a host has before a service starts: containers that do one thing and end have put it there. */
export interface VolumeContents {
  /** Folder that its files are taken from, as written; absent where nothing of it is a file of a machine. */
  readonly folder?: string;
  /** Texts of the artefact, by their path in the volume. */
  readonly files: Readonly<Record<string, string>>;
  /** Who has put it there: Terraform addresses. */
  readonly filledBy: readonly string[];
  /** Where a configuration of a model is loaded at once. */
  readonly reloads: readonly { readonly by: string; readonly url: string }[];
}

/**
 * What the containers of an artefact put into named volumes, by the name of the volume: files that are uploaded into it,
 * and what `apply-config` puts there.
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

/** What `apply-config …` puts where; nothing where it is something else, or nothing was uploaded for it. */
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
  const content = upload.find((one) => one.file === file)?.content;
  if (folder === undefined || name === undefined || content === undefined) return undefined;
  return { path: posix.join(folder, `${name}.pbtxt`), content, server };
}

/** Whether a text is one expression, and so nothing that is known here. */
function isExpression(value: string): boolean {
  return /^\$\{.*\}$/s.test(value);
}

function isBelow(path: string, folder: string): boolean {
  const relative = posix.relative(folder, path);
  return relative === "" || !relative.startsWith("..");
}
