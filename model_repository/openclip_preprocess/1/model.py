"""Converts image files to the pixels for openclip_vit_b32_u8: OpenCLIP's validation transform, in 8 bits.

Runs in Triton's Python backend, which requires Pillow and NumPy. The Triton emulator emulates this model with its own
preprocessing (inference/preprocess/preprocess.ts) and the same messages; a test compares the two.
"""

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image, ImageOps

SIDE = 224
FORMATS = ("JPEG", "PNG", "WEBP")

# the model checks its own limit before decoding; Pillow's limit is only a warning
Image.MAX_IMAGE_PIXELS = None


class ImageError(Exception):
    """Error of one image, phrased to follow `image N`."""


def pixels_of(encoded, max_pixels):
    """Returns a JPEG, PNG or WebP file as `[224, 224, 3]` 8-bit RGB."""
    try:
        image = Image.open(io.BytesIO(encoded), formats=FORMATS)
    except Exception as error:
        if not is_known_type(encoded):
            raise ImageError("is not a JPEG, PNG or WebP file") from error
        raise ImageError(f"cannot be decoded: {error}") from error
    width, height = image.size
    if width * height > max_pixels:
        raise ImageError(f"has {width} × {height} pixels, more than the limit of {max_pixels}")
    try:
        return np.asarray(transformed(upright(image), max_pixels))
    except Exception as error:
        raise ImageError(f"cannot be decoded: {error}") from error


def is_known_type(encoded):
    return (
        encoded[:3] == b"\xff\xd8\xff"
        or encoded[:8] == b"\x89PNG\r\n\x1a\n"
        or (encoded[:4] == b"RIFF" and encoded[8:12] == b"WEBP")
    )


def upright(image):
    """Returns the image in its EXIF orientation, in a mode that can be resized."""
    image = ImageOps.exif_transpose(image)
    if image.mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    if image.mode == "1":
        return image.convert("L")
    if image.mode.startswith("I"):
        # 16-bit grey: Pillow would clip it to 255 instead of scaling it
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def transformed(image, max_pixels):
    """Resizes the shortest side to 224 with antialiased bicubic and crops the centre. Alpha weights the colours and is dropped."""
    width, height = image.size
    short = min(width, height)
    size = tuple(SIDE if side == short else int(SIDE * side / short) for side in (width, height))
    left, top = (int(round((side - SIDE) / 2.0)) for side in size)
    if size[0] * size[1] > max_pixels:
        # resize only the cropped region: a one-pixel line would become a very large image
        x, y = width / size[0], height / size[1]
        box = (left * x, top * y, (left + SIDE) * x, (top + SIDE) * y)
        return image.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=box).convert("RGB")
    image = image.resize(size, Image.Resampling.BICUBIC)
    return image.crop((left, top, left + SIDE, top + SIDE)).convert("RGB")


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"]).get("parameters", {})
        self.max_pixels = int(parameters["max_image_pixels"]["string_value"])
        # Pillow releases the GIL while it decodes and resizes
        self.pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        encoded = pb_utils.get_input_tensor_by_name(request, "encoded").as_numpy()
        images = [self.pool.submit(pixels_of, item, self.max_pixels) for item in encoded.reshape(-1)]
        pixels = np.empty((len(images), SIDE, SIDE, 3), dtype=np.uint8)
        problem = None
        for index, image in enumerate(images):
            try:
                pixels[index] = image.result()
            except ImageError as error:
                problem = problem or f"image {index} {error}"
        if problem is not None:
            error = pb_utils.TritonError(problem, pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(output_tensors=[], error=error)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("pixels", pixels)])

    def finalize(self):
        self.pool.shutdown()
