"""Ceiling of `npm run lab -- gateway`: libjpeg-turbo decodes and OpenCV resizes, in one thread, without HTTP and Triton.

OpenCV's wheel contains libjpeg-turbo with its SIMD code. The resize averages areas (INTER_AREA), OpenCV's antialiased filter,
to 224 pixels on the shortest side; the crop is a view. For a photo the resize takes as long as the decoding (4 and 4.5 ms), so that a
program that resizes faster can take less time. Arguments: a folder of JPEG files and a duration in seconds. Prints JSON.
"""

import json
import sys
import time
from pathlib import Path

import cv2
import numpy as np

SIDE = 224

cv2.setNumThreads(1)
folder, seconds = sys.argv[1], float(sys.argv[2])
files = [np.frombuffer(path.read_bytes(), dtype=np.uint8) for path in sorted(Path(folder).iterdir())]


def pixels_of(file: np.ndarray) -> np.ndarray:
    image = cv2.imdecode(file, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    height, width = image.shape[:2]
    short = min(width, height)
    resized = cv2.resize(image, (SIDE * width // short, SIDE * height // short), interpolation=cv2.INTER_AREA)
    left, top = (resized.shape[1] - SIDE) // 2, (resized.shape[0] - SIDE) // 2
    return resized[top : top + SIDE, left : left + SIDE]


for file in files:
    pixels_of(file)
count, started, processor = 0, time.monotonic(), time.process_time()
while time.monotonic() - started < seconds:
    pixels_of(files[count % len(files)])
    count += 1
elapsed, processor = time.monotonic() - started, time.process_time() - processor
versions = [line.split(":", 1)[1].strip() for line in cv2.getBuildInformation().splitlines() if line.strip().startswith("JPEG:")]
print(json.dumps({"images": count, "seconds": elapsed, "cpuSeconds": processor, "decoder": versions[0]}))
