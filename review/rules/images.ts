import { renderFinding } from "../../constructs/checks/findings.ts";
import { imageFindings, releaseFindings } from "../../constructs/checks/images.ts";
import { podContainerPath, tritonImagePath } from "./example-paths.ts";
import { gpuOf, ofType } from "./facts.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { imagesOf } from "./used-images.ts";
import { isMissing, text } from "./values.ts";

/** Versions, availability and GPU support of images. */
export const imageRules: readonly ReviewRule[] = [
  rule({
    id: "image-version",
    severity: "error",
    title: "An image names a version or a digest.",
    rationale:
      "`latest`, `main`, `stable` or a missing tag can refer to a different image tomorrow: a recreated container then runs an untested image, and a plan shows no difference.",
    inputs:
      "The names of `docker_image`, of `docker_container`, of the containers of a Deployment, and of the images in the chart values.",
    fix: "set a version in the settings, such as 'name:1.2', or preferably a digest, 'name@sha256:…'",
    example: {
      stack: "single-gpu",
      message:
        "image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'nvcr.io/nvidia/tritonserver:latest'",
      edits: [
        {
          path: tritonImagePath("name"),
          failing: "nvcr.io/nvidia/tritonserver:latest",
          passing: "nvcr.io/nvidia/tritonserver:26.07-py3",
        },
      ],
    },
    find: each(imagesOf, ({ image }) => imageFindings(image).map(renderFinding)),
  }),
  rule({
    id: "image-digest",
    severity: "note",
    title: "Pulled images are pinned by digest.",
    rationale:
      "The registry's owner can move a tag to a different image; a digest always identifies the same image.",
    inputs: "The same names as `image-version`, except images built by the project.",
    fix: "add the digest that 'docker buildx imagetools inspect NAME' prints: 'name@sha256:…'",
    example: {
      stack: "single-gpu",
      message: "image should be pinned by digest, got 'nvcr.io/nvidia/tritonserver:26.07-py3'",
      edits: [
        {
          path: tritonImagePath("name"),
          failing: "nvcr.io/nvidia/tritonserver:26.07-py3",
          passing: `nvcr.io/nvidia/tritonserver@sha256:${"0123456789abcdef".repeat(4)}`,
        },
      ],
    },
    find: each(imagesOf, ({ image }) =>
      image.startsWith("clipstack/") || image.includes("@")
        ? undefined
        : `image should be pinned by digest, got '${image}'`,
    ),
  }),
  rule({
    id: "image-gpu-architecture",
    severity: "error",
    title: "Triton's image supports the GPU's architecture.",
    rationale:
      "An image older than the GPU has a CUDA version without support for it: Triton starts, but every model fails to load.",
    inputs:
      "The release in the tag of NVIDIA's image (`26.07-py3`), and the GPU of the output `environment`. Other tags and bare digests are ignored.",
    fix: "use a newer Triton release or a different GPU (host.gpu, nodePool.gpu)",
    example: {
      stack: "single-gpu",
      message:
        "image must be 25.01 or newer for NVIDIA RTX PRO 6000 Blackwell (Blackwell), got 'nvcr.io/nvidia/tritonserver:24.05-py3'",
      settings: "host: { gpu: rtx-pro-6000-blackwell }",
      edits: [
        {
          path: tritonImagePath("name"),
          failing: "nvcr.io/nvidia/tritonserver:24.05-py3",
          passing: "nvcr.io/nvidia/tritonserver:25.01-py3",
        },
      ],
    },
    find: each(imagesOf, ({ image, triton }, change) => {
      const gpu = triton ? gpuOf(change) : undefined;
      return gpu && releaseFindings(image, gpu).map(renderFinding);
    }),
  }),
  rule({
    id: "image-local-never-pulled",
    severity: "error",
    title: "Images loaded into the node are not pulled.",
    rationale:
      "`kind load` copies an image into the node; it is in no registry. With `imagePullPolicy: Always`, the kubelet tries to pull it, and no pod starts.",
    inputs:
      "The pull policy of containers whose image is one of the project's own builds (`clipstack/…` without a registry).",
    fix: "set image_pull_policy to IfNotPresent",
    example: {
      stack: "kind-local",
      message:
        "image_pull_policy must not be Always for 'clipstack/embed:k8s-cpu-1', which is in no registry",
      settings: "embed: { image: 'clipstack/embed:k8s-cpu-1' }",
      edits: [
        {
          path: podContainerPath("image_pull_policy"),
          failing: "Always",
          passing: "IfNotPresent",
        },
      ],
    },
    find: each(imagesOf, ({ image, pullPolicy }) =>
      image.startsWith("clipstack/") && pullPolicy === "Always"
        ? `image_pull_policy must not be Always for '${image}', which is in no registry`
        : undefined,
    ),
  }),
  rule({
    id: "image-kept",
    severity: "warning",
    title: "Pulled images are kept on the host.",
    rationale:
      "Triton's image is 20 GB. Without `keep_locally`, changing or destroying the resource removes it from the host: other environments there lose it, or the removal fails because they use it.",
    inputs: "`keep_locally` of every `docker_image` that is not built.",
    fix: "set keep_locally to true",
    example: {
      stack: "single-gpu",
      message:
        "keep_locally should be true for a pulled image ('nvcr.io/nvidia/tritonserver:26.07-py3'), got false",
      edits: [
        {
          path: tritonImagePath("keep_locally"),
          failing: false,
          passing: true,
        },
      ],
    },
    find: each(ofType("docker_image"), (resource) => {
      const { name, keep_locally: kept } = resource.after ?? {};
      return isMissing(resource, "build") && kept !== true
        ? `keep_locally should be true for a pulled image ('${text(name) ?? "known when applied"}'), got ${String(kept ?? "nothing")}`
        : undefined;
    }),
  }),
];
