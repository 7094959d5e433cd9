"""Baseline of `npm run lab -- server`: a straightforward CLIP image server with FastAPI, ONNX Runtime and Pillow.

It has the same requests and responses as the embed server's `POST /embed/base64` and, for images, `POST /v1/embeddings`, loads the same model file and applies
OpenCLIP's validation transform. The route is synchronous, so FastAPI runs it in its thread pool: decoding, resizing and
inference release the GIL and overlap. Each request is one batch. Environment variables: MODEL_PATH (required),
INTRA_OP_THREADS (0: ONNX Runtime's default) and ALLOW_SPINNING.
"""

import base64
import io
import os

import numpy as np
import onnxruntime as ort
from fastapi import FastAPI, HTTPException
from PIL import Image
from pydantic import BaseModel, Field

SIDE = 224
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], dtype=np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], dtype=np.float32)
SCALE = 1 / (255 * STD)
SHIFT = -MEAN / STD

options = ort.SessionOptions()
options.intra_op_num_threads = int(os.environ.get("INTRA_OP_THREADS", "0"))
options.add_session_config_entry("session.intra_op.allow_spinning", os.environ.get("ALLOW_SPINNING", "1"))
session = ort.InferenceSession(os.environ["MODEL_PATH"], options, providers=["CPUExecutionProvider"])
session.run(None, {"image": np.zeros((1, 3, SIDE, SIDE), dtype=np.float32)})

app = FastAPI()


class EmbedRequest(BaseModel):
    images: list[str] = Field(min_length=1, max_length=32)


class EmbedResponse(BaseModel):
    embeddings: list[list[float]]
    model: str


def preprocess(image: Image.Image) -> np.ndarray:
    """Shortest side to 224 with bicubic, centre crop, RGB, normalised: [3, 224, 224] float32."""
    width, height = image.size
    short = min(width, height)
    size = (SIDE if width == short else SIDE * width // short, SIDE if height == short else SIDE * height // short)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = round((size[0] - SIDE) / 2), round((size[1] - SIDE) / 2)
    pixels = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)).convert("RGB"), dtype=np.float32)
    return (pixels * SCALE + SHIFT).transpose(2, 0, 1)


def decode(text: str, index: int) -> np.ndarray:
    try:
        return preprocess(Image.open(io.BytesIO(base64.b64decode(text, validate=True))))
    except (OSError, ValueError) as error:
        raise HTTPException(422, f"image {index} cannot be read: {error}") from error


@app.get("/healthz")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


def vectors_of(images: list[str]) -> list[list[float]]:
    batch = np.stack([decode(text, index) for index, text in enumerate(images)])
    (vectors,) = session.run(None, {"image": batch})
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.tolist()


@app.post("/embed/base64")
def embed(request: EmbedRequest) -> EmbedResponse:
    return EmbedResponse(embeddings=vectors_of(request.images), model="ViT-B-32")


class OpenAiRequest(BaseModel):
    model: str
    input: list[str] = Field(min_length=1, max_length=32)


@app.get("/v1/models")
async def models() -> dict[str, list[dict[str, str]]]:
    return {"data": [{"id": "ViT-B-32"}]}


@app.post("/v1/embeddings")
def embeddings(request: OpenAiRequest) -> dict[str, object]:
    """OpenAI's route, with images as `data:` URIs."""
    if request.model != "ViT-B-32":
        raise HTTPException(404, f"model must be ViT-B-32, got {request.model}")
    vectors = vectors_of([text.partition(",")[2] for text in request.input])
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return {"object": "list", "data": data, "model": request.model}
