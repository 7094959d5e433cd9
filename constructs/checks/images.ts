import type { Finding } from "./findings.ts";

/** Images that can change under the same name. A digest is best; a tag that says a version is accepted. */
export function imageFindings(image: string): readonly Finding[] {
  if (image.includes("@")) {
    return /@sha256:[0-9a-f]{64}$/.test(image)
      ? []
      : [`image must end in '@sha256:' and 64 hexadecimal digits, got '${image}'`];
  }
  const tag = /:([^:/]+)$/.exec(image)?.[1];
  if (tag !== undefined && tag !== "latest") return [];
  return [`image must name a version, like 'name:1.2' or better 'name@sha256:…', got '${image}'`];
}
