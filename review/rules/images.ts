import { imageFindings, releaseFindings } from "../../constructs/checks/images.ts";
import { imagesOf } from "../facts/used-images.ts";
import { isMissing, text } from "../facts/values.ts";
import { gpuOf, ofType } from "../facts/workloads.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

/** Versions, availability and GPU support of images. */
export const imageRules: readonly ReviewRule[] = [
  rule({
    id: "image-version",
    severity: "error",
    fix: "set a version in the settings, such as 'name:1.2', or preferably a digest, 'name@sha256:…'",
    find: each(imagesOf, ({ image }) => imageFindings(image)),
  }),
  rule({
    id: "image-digest",
    severity: "note",
    fix: "add the digest that 'docker buildx imagetools inspect NAME' prints: 'name@sha256:…'",
    find: each(imagesOf, ({ image }) =>
      image.startsWith("clipstack/") || image.includes("@")
        ? undefined
        : `image should be pinned by digest, got '${image}'`,
    ),
  }),
  rule({
    id: "image-gpu-architecture",
    severity: "error",
    fix: "use a newer Triton release or a different GPU (host.gpu, nodePool.gpu)",
    find: each(imagesOf, ({ image, triton }, change) => {
      const gpu = triton ? gpuOf(change) : undefined;
      return gpu && releaseFindings(image, gpu);
    }),
  }),
  rule({
    id: "image-local-never-pulled",
    severity: "error",
    fix: "set image_pull_policy to IfNotPresent",
    find: each(imagesOf, ({ image, pullPolicy }) =>
      image.startsWith("clipstack/") && pullPolicy === "Always"
        ? `image_pull_policy must not be Always for '${image}', which is in no registry`
        : undefined,
    ),
  }),
  rule({
    id: "image-kept",
    severity: "warning",
    fix: "set keep_locally to true",
    find: each(ofType("docker_image"), (resource) => {
      const { name, keep_locally: kept } = resource.after ?? {};
      return isMissing(resource, "build") && kept !== true
        ? `keep_locally should be true for a pulled image ('${text(name) ?? "known when applied"}'), got ${String(kept ?? "nothing")}`
        : undefined;
    }),
  }),
];
