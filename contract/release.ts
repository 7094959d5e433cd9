import release from "./release.json" with { type: "json" };

/** Digests of the images that were published with this version, by kind: `sha256:…`. Written by `tools/release.mjs pack`; empty in a checkout. */
const digests: Readonly<Record<string, string>> = release.digests;

/** Published embed image of this version, by digest; undefined in a checkout. */
export function publishedImage(kind: "embed-cpu" | "embed-gpu"): string | undefined {
  const digest = digests[kind];
  return digest === undefined ? undefined : `${release.registry}/clipstack/embed@${digest}`;
}
