import type { GpuSpec } from "../../contract/gpus.ts";
import { tritonReleaseOf } from "../../contract/triton-releases.ts";
import { finding, findingIf } from "./findings.ts";

/** Mutable tags, also with the suffix of a variant: `stable-alpine`. With a date or commit, such a tag is a version. */
const mutableTag =
  /^(latest|main|master|stable|edge|nightly|dev|develop|head|canary|rolling|current|lts)(-[a-z]+)*$/i;

/** Rejects an image that can change under the same name. A tag with a version is accepted; a digest is better. */
export function imageFindings(image: string, path = "image"): readonly string[] {
  if (image.includes("@")) {
    return /@sha256:[0-9a-f]{64}$/.test(image)
      ? []
      : [finding(path, "end in '@sha256:' and 64 hexadecimal digits", `'${image}'`)];
  }
  const tag = /:([^:/]+)$/.exec(image)?.[1];
  if (tag !== undefined && !mutableTag.test(tag)) return [];
  return [finding(path, "name a version, like 'name:1.2' or better 'name@sha256:…'", `'${image}'`)];
}

/** First release with every option that the constructs pass; `--model-config-name` is the newest. */
const firstWithOptions = "24.06";

/** Rejects a Triton image that is too old for the options of the constructs. */
export function tritonOptionFindings(image: string, path = "image"): readonly string[] {
  return findingIf(
    (tritonReleaseOf(image) ?? firstWithOptions) < firstWithOptions,
    path,
    `be ${firstWithOptions} or newer, because older Triton servers reject --model-config-name`,
    `'${image}'`,
  );
}

/** Rejects DALI if the image lacks its backend, or if `weights` is `image`, because that image has no DALI pipeline. */
export function daliFindings(
  weights: "volume" | "host-path" | "image" | "url",
  image: string | undefined,
): readonly string[] {
  const variant = /\/tritonserver:\d\d\.\d\d-([\w-]+)/.exec(image ?? "")?.[1] ?? "py3";
  return [
    ...findingIf(
      weights === "image",
      "jpegDecoder",
      "be none when weights is image, because the image has no DALI pipeline",
      "'dali'",
    ),
    ...findingIf(
      !["py3", "py3-igpu"].includes(variant),
      "jpegDecoder",
      "be none for an image without DALI; of NVIDIA's images, <release>-py3 has it",
      `'dali' with '${image}'`,
    ),
  ];
}

/** Rejects a GPU that is newer than the image. */
export function releaseFindings(
  image: string,
  {
    label,
    architecture,
    tritonRelease: first,
  }: Pick<GpuSpec, "label" | "architecture" | "tritonRelease">,
  path = "image",
): readonly string[] {
  return findingIf(
    (tritonReleaseOf(image) ?? first) < first,
    path,
    `be ${first} or newer for ${label} (${architecture})`,
    `'${image}'`,
  );
}
