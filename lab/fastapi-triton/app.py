"""Baseline of `npm run lab -- gateway`: FastAPI and Pillow in front of a Triton server, with NVIDIA's client.

It has the same requests and responses as the embed server's `POST /embed` with one image, applies OpenCLIP's validation transform
without the normalisation, and calls the model that accepts pixels (gRPC, UINT8). Decoding, resizing and the call run in FastAPI's
thread pool and release the GIL. Environment variables: TRITON_GRPC_URL, MODEL, WIDTH.
"""

import io
import os

import numpy as np
import tritonclient.grpc as triton
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from PIL import Image
from pydantic import BaseModel

SIDE = 224
MODEL = os.environ["MODEL"]

client = triton.InferenceServerClient(os.environ["TRITON_GRPC_URL"])
outputs = [triton.InferRequestedOutput("embedding")]

app = FastAPI()


class EmbedResponse(BaseModel):
    embeddings: list[list[float]]
    model: str


def pixels_of(file: bytes) -> np.ndarray:
    """Shortest side to 224 with bicubic, centre crop: [1, 224, 224, 3] uint8 RGB."""
    image = Image.open(io.BytesIO(file))
    width, height = image.size
    short = min(width, height)
    size = (SIDE if width == short else SIDE * width // short, SIDE if height == short else SIDE * height // short)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = round((size[0] - SIDE) / 2), round((size[1] - SIDE) / 2)
    return np.asarray(image.crop((left, top, left + SIDE, top + SIDE)).convert("RGB"))[np.newaxis]


def embed_file(file: bytes) -> list[list[float]]:
    try:
        pixels = pixels_of(file)
    except (OSError, ValueError) as error:
        raise HTTPException(422, f"image 0 cannot be read: {error}") from error
    tensor = triton.InferInput("image", list(pixels.shape), "UINT8")
    tensor.set_data_from_numpy(pixels)
    vectors = client.infer(MODEL, [tensor], outputs=outputs).as_numpy("embedding").copy()
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.tolist()


@app.get("/healthz")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/embed")
async def embed(request: Request) -> EmbedResponse:
    file = await request.body()
    return EmbedResponse(embeddings=await run_in_threadpool(embed_file, file), model="openclip-vit-b32")
