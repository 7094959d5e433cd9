import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { RenderedFile } from "./rendered-file.ts";

/** One entry of `packages` in a `package-lock.json`, as far as it is read here. */
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

/** How a package is reached: npm leaves out what is only reached by what it is told to leave out. */
type Reach = "required" | "optional";

/** `inference-image/package-lock.json`: the context of the image holds no other lock file than its own. */
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
 * The lock file of one workspace by itself: what `npm ci` needs in its folder, at the versions and checksums that the whole
 * project has.
 *
 * @throws {Error} when a package that the workspace needs is not in the lock, or lies where it would hide another one
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

/** What npm writes beside a package that not everybody needs. */
function flagsOf(production: Reach | undefined, development: Reach | undefined): object {
  if (production === "required") return {};
  if (production === "optional") {
    return development === "required" ? { devOptional: true } : { optional: true };
  }
  return development === "optional" ? { dev: true, optional: true } : { dev: true };
}

/** Paths in the lock of everything that is needed, and how; found as Node finds it: in the nearest `node_modules`. */
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
