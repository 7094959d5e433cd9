import { z } from "zod";
import { gigaFlopsPerItem, weightsMiB } from "../contract/model-shapes.ts";
import { type ModelSpec, modelSpecFile } from "../contract/model-spec.ts";
import { catalogueSpecs } from "../contract/models/index.ts";
import { schemaTable } from "../stacks/settings/settings-docs.ts";

/** Environment whose models do not fit its GPU, as on the page, and the error. A test synthesizes it. */
export const tooManyModels = {
  name: "everything",
  yaml: `stack: single-gpu
host: { gpu: t4 }
models: [openclip-vit-l14, siglip2-base-224, openclip-vit-b16, dinov2-base]
`,
  error:
    "everything/host: gpu must have room for the models: GPU 0 has 15360 MiB, 13824 usable, and they need 48988 (triton-onnx 10590 + a reload of triton-onnx 10078 + triton-trt 8609 + a reload of triton-trt 8097 + embed 10590 + a TensorRT build 1024; by model: openclip-vit-l14 image 14930 + openclip-vit-l14 text 3428 + siglip2-base-224 image 6381 + siglip2-base-224 text 5044 + openclip-vit-b16 image 6487 + openclip-vit-b16 text 2043 + dinov2-base image 8115 + CUDA of 3 processes 1536 + a TensorRT build 1024): serve fewer models or towers, disable a service, or use a GPU with more memory",
} as const;

/** Page of the documentation with the model catalogue. */
export function modelDocs(): string {
  const line = (cells: readonly unknown[]) => `| ${cells.join(" | ")} |`;
  const columns = [
    "`models`",
    "embeds",
    "width",
    "image (px)",
    "weights in FP32 (MiB)",
    "GFLOP per image",
    "licence of the weights",
  ];
  const rows = catalogueSpecs.map((spec) => line(cellsOf(spec)));
  return `# Models

Models of the catalogue, rendered from \`contract/models/\` by \`npm run render\`. Each entry states the source of every fact. What has
been run with which weights: [untested](untested.md).

${[line(columns), line(columns.map(() => "---")), ...rows].join("\n")}

Restricted: the weights must not be used for some purposes, which \`licence.restriction\` of the spec quotes from the licence or the
model card. Read it before you deploy the model.

An environment lists its models; every service serves all of them, and requests select one by name. The first is the default.

\`\`\`yaml
models: [openclip-vit-b32, dinov2-small]
# images only, without the text tower:
# models: [{ name: openclip-vit-b32, modalities: [image] }]
\`\`\`

Each tower has its folder in the model repository: \`model_repository/dinov2_small/1/model.onnx\`, \`model_repository/openclip_vit_b32_text/1/model.onnx\`.
\`npx clipstack model\` fetches, imports, exports or generates these files: see [model tools](../model-tools/README.md).

## GPU memory

The estimated memory of all models in all services of a GPU is compared with the GPU's at synth. Numbers are MiB:

\`\`\`yaml
# environments/${tooManyModels.name}.yaml
${tooManyModels.yaml}\`\`\`

\`\`\`console
$ npm run synth
${tooManyModels.error}
\`\`\`

Each service loads every model, and a running Triton can reload them. Remove a model or a modality, disable a service
(\`tritonTrt.enabled: false\`), set \`modelControl: none\`, or use another GPU.

## Fields of a spec

[My own model](guides/own-model.md) is described by a file with these fields.
Fields without \`required\` or a default are optional. A required field inside an optional object is required only if the object is
present. A model has at least one of the two towers.

${schemaTable("field", z.toJSONSchema(modelSpecFile, { io: "input" })).join("\n")}
`;
}

function cellsOf(spec: ModelSpec): readonly unknown[] {
  const { image, text } = spec.towers;
  const { width, height } = image?.input.size ?? {};
  const towers = [image, text].filter((tower) => tower !== undefined);
  const { weights, restriction } = spec.licence;
  return [
    `\`${spec.name}\``,
    text === undefined ? "images" : image === undefined ? "texts" : "images, texts",
    spec.embedding.width,
    image === undefined ? "" : `${width} × ${height}`,
    towers.map((tower) => weightsMiB(tower, "fp32")).join(" + "),
    image === undefined ? "" : gigaFlopsPerItem(image).toFixed(1),
    restriction === undefined ? weights : `${weights}; restricted`,
  ];
}
