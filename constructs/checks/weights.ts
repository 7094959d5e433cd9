import type { Finding } from "./findings.ts";

/** A Triton that would load more than its model: an image with weights has the folders of several. */
export function weightsFindings(
  weights: "volume" | "host-path" | "image",
  modelControl: "none" | "explicit" | "open",
): readonly Finding[] {
  if (weights !== "image" || modelControl !== "none") return [];
  return [
    {
      path: "modelControl",
      must: "be explicit when weights is image, or Triton loads every model that the image has",
      got: "'none'",
    },
  ];
}
