import type { Finding } from "./findings.ts";

/** Rejects a Triton that would load every model of an image with weights. */
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
