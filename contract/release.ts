import release from "./release.json" with { type: "json" };

/** Registry of the published images and of the chart. */
export const releaseRegistry: string = release.registry;

/** Digests of the images that were published with this version, by kind: `sha256:…`. Written by the release; empty in a checkout. */
const digests: Readonly<Record<string, string>> = release.digests;

/** Published embed image of this version, by digest; undefined in a checkout. */
export function publishedImage(kind: "embed-cpu" | "embed-gpu"): string | undefined {
  const digest = digests[kind];
  return digest === undefined ? undefined : `${releaseRegistry}/embed@${digest}`;
}
