import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { RenderedFile } from "./rendered-file.ts";

/** Entry of `packages` in a `package-lock.json`, limited to the fields read here. */
interface LockedPackage {
  readonly version?: string;
  readonly link?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>;
}

/** A `package-lock.json` of version 3. */
export interface Lock {
  readonly lockfileVersion: number;
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

/** Kind of dependency through which a package is reached; npm omits packages reached only through omitted kinds. */
type Reach = "required" | "optional";

/** Renders `inference-image/package-lock.json`, the lock file for building the image. */
export function imageLockFiles(): readonly RenderedFile[] {
  const path = fileURLToPath(new URL("../package-lock.json", import.meta.url));
  const lock = JSON.parse(readFileSync(path, "utf8")) as Lock;
  return [
    {
      path: "inference-image/package-lock.json",
      text: `${JSON.stringify(workspaceLock(lock, "inference-image"), null, 2)}\n`,
    },
  ];
}

/**
 * Returns the lock file of a single workspace for `npm ci` in its folder, with the versions and checksums of the whole
 * project.
 *
 * @throws {Error} if a package of the workspace is not in the lock file, or its path would hide another package
 */
export function workspaceLock(lock: Lock, workspace: string): object {
  const root = lock.packages[workspace];
  if (root === undefined) throw new Error(`package-lock.json has no workspace '${workspace}'`);
  const production = reached(lock, workspace, root.dependencies);
  const development = reached(lock, workspace, root.devDependencies);

  const packages: Record<string, object> = { "": root };
  for (const path of [...new Set([...production.keys(), ...development.keys()])].sort()) {
    const own = path.startsWith(`${workspace}/`) ? path.slice(workspace.length + 1) : path;
    if (own in packages) throw new Error(`${path} and ${own} would be one package`);
    const { dev, optional, devOptional, peer, ...entry } = lock.packages[path] as Record<
      string,
      unknown
    >;
    packages[own] = { ...entry, ...flagsOf(production.get(path), development.get(path)) };
  }
  const { name, version } = root as { readonly name?: string; readonly version?: string };
  return { name, version, lockfileVersion: lock.lockfileVersion, requires: true, packages };
}

/** Returns npm's flags of a package that is optional or only for development. */
function flagsOf(production: Reach | undefined, development: Reach | undefined): object {
  if (production === "required") return {};
  if (production === "optional") {
    return development === "required" ? { devOptional: true } : { optional: true };
  }
  return development === "optional" ? { dev: true, optional: true } : { dev: true };
}

/** Returns the paths of all reached packages in the lock file, resolved like Node in the nearest `node_modules`. */
function reached(
  lock: Lock,
  from: string,
  direct: Readonly<Record<string, string>> = {},
): ReadonlyMap<string, Reach> {
  const found = new Map<string, Reach>();
  const visit = (parent: string, name: string, reach: Reach): void => {
    const path = resolve(lock, parent, name);
    if (path === undefined) {
      if (reach === "optional") return;
      throw new Error(`package-lock.json has no ${name}, which ${parent} needs`);
    }
    if (found.get(path) === "required" || found.get(path) === reach) return;
    found.set(path, reach);
    const entry = lock.packages[path]!;
    const optional = entry.optionalDependencies ?? {};
    for (const it of Object.keys(entry.dependencies ?? {})) {
      if (!(it in optional)) visit(path, it, reach);
    }
    for (const it of Object.keys(optional)) visit(path, it, "optional");
    for (const it of Object.keys(entry.peerDependencies ?? {})) {
      if (entry.peerDependenciesMeta?.[it]?.optional !== true) visit(path, it, reach);
    }
  };
  for (const name of Object.keys(direct)) visit(from, name, "required");
  return found;
}

function resolve(lock: Lock, from: string, name: string): string | undefined {
  for (let folder = from; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf("/")))) {
    const path = folder === "" ? `node_modules/${name}` : `${folder}/node_modules/${name}`;
    if (lock.packages[path] !== undefined && !path.includes("node_modules/node_modules"))
      return path;
    if (folder === "") return undefined;
  }
}
