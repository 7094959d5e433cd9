"""Measures engines without a server and prints one JSON object.

Usage: measure-engines.py MODEL FP16_MODEL DEVICE LARGEST_BATCH SECONDS ENGINES. Each engine computes batches of 1, 2, 4, … images for SECONDS each:
median time in ms, images per second, GPU memory of this process, and the agreement with ONNX Runtime on the CPU.
"""

import json
import subprocess
import sys
import time

import numpy as np
from engines import OnnxRuntime, open_engine

model, fp16_model, device = sys.argv[1:4]
largest, seconds = int(sys.argv[4]), float(sys.argv[5])
images = np.random.default_rng(1).standard_normal((max(largest, 8), 3, 224, 224)).astype(np.float32)


def gpu_memory_mib():
    """Memory in use on all GPUs, of all processes."""
    if device != "cuda":
        return None
    args = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(int(line) for line in subprocess.check_output(args, text=True).split())


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def measure(engine, batch):
    times, end = [], time.perf_counter() + seconds
    engine.run(images[:batch])
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        engine.run(images[:batch])
        times.append(time.perf_counter() - start)
    median = float(np.median(times))
    return {"batch": batch, "runs": len(times), "medianMs": 1000 * median, "imagesPerSecond": batch / median}


names = sys.argv[6].split(",")
if "onnxruntime" in names:
    names += ["onnxruntime-fp16", *(["onnxruntime-fp32"] if device == "cuda" else [])]
reference = OnnxRuntime(model, "cpu").run(images[:8])
results = []
for name in names:
    before = gpu_memory_mib()
    try:
        engine = open_engine(name, fp16_model if name == "onnxruntime-fp16" else model, device)
        found = engine.run(images[:8])
        results.append(
            {
                "engine": name,
                "version": engine.version,
                "minCosine": float((unit(found) * unit(reference)).sum(axis=1).min()),
                "maxRelativeDifference": float(
                    (np.linalg.norm(found - reference, axis=1) / np.linalg.norm(reference, axis=1)).max()
                ),
                "batches": [measure(engine, 2**power) for power in range(largest.bit_length())],
                "gpuMemoryMiB": None if before is None else gpu_memory_mib() - before,
            }
        )
        del engine
    except Exception as error:  # the other engines are measured
        results.append({"engine": name, "error": f"{type(error).__name__}: {error}".splitlines()[0]})
print(json.dumps(results))
