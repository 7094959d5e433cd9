import { type Finding, findingIf } from "./findings.ts";

/** Rejects a Triton that would load every model of an image with weights. */
export function weightsFindings(
  weights: "volume" | "host-path" | "image",
  modelControl: "none" | "explicit" | "open",
): readonly Finding[] {
  return findingIf(
    weights === "image" && modelControl === "none",
    "modelControl",
    "be explicit when weights is image, or Triton loads every model that the image has",
    "'none'",
  );
}
