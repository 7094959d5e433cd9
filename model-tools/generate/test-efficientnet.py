"""Pooled features of EfficientNet-Lite0 by PyTorch with the model code of the package's companion, for tests.

usage: efficientnet-reference.py CHECKPOINT COMPANION_WHEEL INPUT OUTPUT
INPUT: float32 [N, 3, 224, 224], little-endian; OUTPUT: float32 [N, 1280].
"""

import sys

import numpy
import torch

checkpoint, companion, source, output = sys.argv[1:]
# a wheel is a zip archive that Python can import from
sys.path.insert(0, companion)
from efficientnet_lite_pytorch import EfficientNet

model = EfficientNet.from_name("efficientnet-lite0")
model.load_state_dict(torch.load(checkpoint, weights_only=True))
model.eval()
images = torch.from_numpy(numpy.fromfile(source, numpy.float32).reshape(-1, 3, 224, 224))
with torch.no_grad():
    features = model.extract_features(images).mean((2, 3))
features.numpy().astype(numpy.float32).tofile(output)
