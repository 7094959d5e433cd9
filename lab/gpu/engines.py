"""Engines that compute an image tower on arrays: ONNX Runtime and PyTorch, on a GPU or the CPU."""

import os
import sys

import numpy as np

# CLIP's mean and deviation of the pixels, in 0..1
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


class OnnxRuntime:
    """ONNX Runtime with its CUDA provider, or on the CPU. TensorFloat-32 is the provider's default."""

    def __init__(self, file: str, device: str, tf32: bool = True):
        if device == "cuda":
            import torch  # loads the CUDA libraries that onnxruntime-gpu links to # noqa: F401
        import onnxruntime

        options = onnxruntime.SessionOptions()
        providers = [("CUDAExecutionProvider", {"use_tf32": str(int(tf32))})] if device == "cuda" else []
        self.session = onnxruntime.InferenceSession(file, options, providers=[*providers, "CPUExecutionProvider"])
        selected = self.session.get_providers()[0]
        if device == "cuda" and selected != "CUDAExecutionProvider":
            raise RuntimeError(f"ONNX Runtime must use CUDAExecutionProvider, got {selected}")
        self.version = onnxruntime.__version__
        self.input = self.session.get_inputs()[0].name

    def run(self, images: np.ndarray) -> np.ndarray:
        return self.session.run(None, {self.input: images})[0]


class PyTorch:
    """OpenCLIP's image tower with the weights of an ONNX file: FP16 on a GPU, FP32 on the CPU. Accepts pixels, too."""

    def __init__(self, file: str, device: str):
        import torch

        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bench/baselines/pytorch"))
        from tower import load_tower

        self.torch, self.version = torch, torch.__version__
        self.device = torch.device(device)
        self.type = torch.float16 if device == "cuda" else torch.float32
        self.tower = load_tower(file).to(self.device, self.type)
        self.mean, self.std = (torch.tensor(it, device=self.device).view(1, 3, 1, 1) for it in (MEAN, STD))

    def run(self, images: np.ndarray) -> np.ndarray:
        torch = self.torch
        with torch.inference_mode():
            tensor = torch.from_numpy(np.ascontiguousarray(images)).to(self.device)
            if tensor.dtype == torch.uint8:
                tensor = (tensor.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std
            return self.tower(tensor.to(self.type)).float().cpu().numpy()


def open_engine(name: str, file: str, device: str):
    """Returns the engine `onnxruntime`, `onnxruntime-fp32` (without TensorFloat-32), `onnxruntime-fp16` or `pytorch`."""
    if name == "pytorch":
        return PyTorch(file, device)
    return OnnxRuntime(file, device, tf32=name != "onnxruntime-fp32")
