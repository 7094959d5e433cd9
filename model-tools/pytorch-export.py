"""Export a small open_clip image tower with random weights: python pytorch-export.py FILE torchscript|dynamo [published]

`published`: like a published file, with batch size 1 and a normalised embedding.
"""

import sys
from pathlib import Path

import torch

sys.dont_write_bytecode = True  # keeps the checkout unchanged
sys.path.insert(0, str(Path(__file__).parent / "python/export"))
from export import randomise, tiny  # noqa: E402

file, exporter = sys.argv[1:3]
torch.manual_seed(0)
tower = tiny().eval()
randomise(tower)

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
