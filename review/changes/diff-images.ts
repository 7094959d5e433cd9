import type { ResourceChange } from "../input/change.ts";
import { hasSecretPattern, hidden } from "../input/secrets.ts";
import type { ImageNames } from "./diff-values.ts";

/** Image names by id and by resource address. */
export function imageNames(resources: readonly ResourceChange[]): ImageNames {
  const before = new Map<string, string>();
  const after = new Map<string, string>();
  for (const { type, address, before: oldValues, after: newValues, sensitive } of resources) {
    if (type !== "docker_image") continue;
    for (const [values, names] of [
      [oldValues, before],
      [newValues, after],
    ] as const) {
      const name = typeof values?.name === "string" ? values.name : undefined;
      if (values === undefined || name === undefined) continue;
      const isSecret = hasSecretPattern(name) || sensitive.some(([first]) => first === "name");
      const printedName = isSecret ? hidden : withDigest(name, values.repo_digest);
      names.set(address, printedName);
      for (const id of [values.image_id, values.id]) {
        if (typeof id === "string" && id !== "") names.set(id, printedName);
      }
    }
  }
  return { before, after };
}

/** `name:tag @ sha256:…`, if Docker reports the digest. */
function withDigest(name: string, digest: unknown): string {
  const [, sha = undefined] = /@(sha256:[0-9a-f]{64})/.exec(String(digest ?? "")) ?? [];
  return sha === undefined || name.includes("@sha256:") ? name : `${name} @ ${sha.slice(0, 19)}`;
}
