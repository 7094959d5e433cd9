"""Export a small open_clip image tower with random weights: python pytorch-export.py FILE torchscript|dynamo [published]

`published`: as a hub has it, for one image, and with an embedding of length 1.
"""

import sys

import torch
from open_clip.transformer import VisionTransformer

file, exporter = sys.argv[1:3]
torch.manual_seed(0)
tower = VisionTransformer(
    image_size=224, patch_size=32, width=48, layers=2, heads=2, mlp_ratio=4, output_dim=512
).eval()
for name, weights in tower.named_parameters():
    if weights.dim() == 1:
        torch.nn.init.normal_(weights, 1.0 if name.endswith("weight") else 0.0, 0.1)
    elif "conv1" in name:
        torch.nn.init.normal_(weights, 0, 4 / 3072**0.5)
    else:
        torch.nn.init.normal_(weights, 0, 1.5 / weights.shape[-1] ** 0.5)

names = {"input_names": ["image"], "output_names": ["embedding"]}
image = torch.randn(2, 3, 224, 224)
if "published" in sys.argv:
    torch.backends.mha.set_fastpath_enabled(False)
    encode = tower.forward
    tower.forward = lambda image: torch.nn.functional.normalize(encode(image), dim=-1)
    is_dynamo = exporter == "dynamo"
    more = {"dynamo": True, "external_data": False} if is_dynamo else {"dynamo": False}
    torch.onnx.export(tower, (image[:1],), file, opset_version=19, **more, **names)
elif exporter == "dynamo":
    batch = torch.export.Dim("batch", min=2, max=64)
    torch.onnx.export(
        tower, (image,), file, dynamo=True, dynamic_shapes=({0: batch},), external_data=False, **names
    )
else:
    axes = {"image": {0: "batch"}, "embedding": {0: "batch"}}
    torch.onnx.export(
        tower, (image,), file, dynamo=False, opset_version=14, dynamic_axes=axes, **names
    )
