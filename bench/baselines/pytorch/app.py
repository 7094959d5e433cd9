"""Image embedding service with FastAPI, OpenCLIP and PyTorch: the baseline of clipstack's endpoints.

Its routes are those of the embed server for images. Each request is one batch; decoding and inference of different requests overlap in
FastAPI's thread pool. On CUDA, the tower runs with autocast to float16. Environment variables: MODEL_PATH (ONNX file with the weights),
MODEL_NAME (in responses) and DEVICE (cpu or cuda).
"""

import base64
import binascii
import io
import os
import threading

import torch
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from open_clip import image_transform
from PIL import Image, ImageOps
from pydantic import BaseModel, Field
from tower import load_tower

MAX_IMAGES = 32
BINARY = "application/octet-stream"

model_name = os.environ["MODEL_NAME"]
device = torch.device(os.environ.get("DEVICE", "cpu"))
tower = load_tower(os.environ["MODEL_PATH"]).to(device)
# batches of several threads would share the device, and its memory
one_batch = threading.Lock()
transform = image_transform(tower.image_size, is_train=False)


class EmbedRequest(BaseModel):
    images: list[str] = Field(min_length=1, max_length=MAX_IMAGES)
    model: str | None = None


class EmbedResponse(BaseModel):
    embeddings: list[list[float]]
    model: str


@torch.inference_mode()
def infer(images: torch.Tensor) -> torch.Tensor:
    """Returns embeddings of unit length, [images, width] float32."""
    with one_batch, torch.autocast(device.type, dtype=torch.float16, enabled=device.type == "cuda"):
        vectors = tower(images.to(device))
    return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu()


def decode(file: bytes, index: int) -> torch.Tensor:
    try:
        return transform(ImageOps.exif_transpose(Image.open(io.BytesIO(file))))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise HTTPException(422, f"image {index} cannot be read: {error}") from error


def embed(files: list[bytes], is_binary: bool) -> Response:
    vectors = infer(torch.stack([decode(file, index) for index, file in enumerate(files)]))
    if is_binary:
        return Response(vectors.numpy().astype("<f4").tobytes(), media_type=BINARY)
    body = EmbedResponse(embeddings=vectors.tolist(), model=model_name)
    return Response(body.model_dump_json(), media_type="application/json")


async def respond(request: Request, files: list[bytes], model: str | None) -> Response:
    if not 1 <= len(files) <= MAX_IMAGES:
        raise HTTPException(400, f"a request must have 1 to {MAX_IMAGES} images, got {len(files)}")
    if model not in (None, model_name):
        raise HTTPException(404, f"model must be {model_name}, got {model}")
    return await run_in_threadpool(embed, files, request.headers.get("accept") == BINARY)


# the first inference selects kernels and allocates memory; the service does not listen before
infer(torch.zeros(1, 3, *tower.image_size))
app = FastAPI(title="PyTorch baseline", version=torch.__version__)


@app.post("/embed", response_model=EmbedResponse)
async def embed_files(request: Request, model: str | None = None) -> Response:
    """Embeds the image files of a multipart form, or the image file that is the body."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        async with request.form() as form:
            files = [await value.read() for _, value in form.multi_items() if not isinstance(value, str)]
    else:
        files = [await request.body()]
    return await respond(request, files, model)


@app.post("/embed/base64", response_model=EmbedResponse)
async def embed_base64(request: Request, body: EmbedRequest) -> Response:
    try:
        files = [base64.b64decode(image, validate=True) for image in body.images]
    except binascii.Error as error:
        raise HTTPException(400, f"images must be base64: {error}") from error
    return await respond(request, files, body.model)


@app.get("/healthz")
@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/readyz")
async def ready() -> dict[str, bool]:
    return {"ready": True}
