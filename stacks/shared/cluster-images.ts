import { servedTowers, tokenizerFile } from "../../constructs/models/served-towers.ts";
import { modelsArgument } from "../../contract/server/model-list.ts";
import type { KubernetesSettings } from "../settings/kubernetes-settings.ts";

type Settings = Pick<KubernetesSettings, "accelerator" | "models" | "model" | "embed" | "triton">;

/**
 * Images that a cluster pulls, one line each with the command that builds and pushes it from `model_repository/`. Images pinned by
 * digest and NVIDIA's own exist already.
 */
export function clusterImageNotes(name: string, settings: Settings): readonly string[] {
  const { models, model, embed, triton } = settings;
  const inImage = model.weights === "image";
  const line = (image: string, contents: string, variables: string, target: string) => {
    if (/@sha256:|^nvcr\.io\/nvidia\//.test(image)) return [];
    const list = `MODELS=${modelsArgument(models)} ${variables}`;
    const command = `docker buildx bake ${target} --set ${target.split(" ")[0]}.tags=${image} --push`;
    return [`${name}: ${image} has ${contents}: ${list}${command}`];
  };
  const [contents, target] = embedBuild(settings, inImage);
  return [
    ...line(embed.image, contents, "", target),
    ...(triton.enabled && triton.server === "tritonserver"
      ? line(
          triton.image,
          inImage ? "Triton and the weights" : "Triton without weights",
          inImage ? "WEIGHTS=image " : "",
          "triton",
        )
      : []),
  ];
}

/** Contents of the embed image, and the bake target that builds it. */
function embedBuild(
  { accelerator, models, embed, triton }: Settings,
  inImage: boolean,
): readonly [string, string] {
  const isGateway = embed.backend === "triton";
  const onGpu = !isGateway && accelerator === "gpu";
  // the Triton emulator runs in the embed image
  const executes = !isGateway || (triton.enabled && triton.server === "emulator");
  if (inImage && executes) {
    const base = onGpu ? " --set embed-weights.contexts.clipstack/embed:cpu=target:embed-gpu" : "";
    return ["the embed server and the weights", `embed-weights${base}`];
  }
  if (inImage && servedTowers(models).some((tower) => tokenizerFile(tower) !== undefined)) {
    return ["the gateway and the tokenizers", "gateway"];
  }
  return ["the embed server without weights", onGpu ? "embed-gpu" : "embed"];
}
