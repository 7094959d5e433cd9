"""Converts image files to the pixels of a model: resize, crop and RGB, in 8 bits, by the parameters in config.pbtxt.

Runs in Triton's Python backend, which requires Pillow and NumPy. The Triton emulator emulates this model with its own
preprocessing (inference/preprocess/preprocess.ts) and the same messages; a test compares the two for every model.
"""

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image, ImageOps

FORMATS = ("JPEG", "PNG", "WEBP")
PILLOW_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
# modes in which Pillow and this file resize colours weighted by alpha
PREMULTIPLIED = {"LA": "La", "RGBA": "RGBa"}

# the model checks its own limit before decoding; Pillow's limit is only a warning
Image.MAX_IMAGE_PIXELS = None


class ImageError(Exception):
    """Error of one image, phrased to follow `image N`."""


class Preprocessing:
    """Preprocessing of one model."""

    def __init__(self, parameters):
        value = lambda name: required(parameters, name)
        self.max_pixels = int(value("max_image_pixels"))
        self.size = (int(value("width")), int(value("height")))
        self.filter = value("filter")
        self.is_converted_first = parameters.get("rgb_conversion", {}).get("string_value") == "before-resize"
        mode = value("resize")
        if mode == "shortest-edge":
            self.edge = int(value("resize_edge"))
            self.transformed = self.shortest_edge
        elif mode == "letterbox":
            self.fill = tuple(int(level) for level in value("letterbox_fill").split(","))
            self.transformed = self.letterbox
        elif mode == "centre-crop":
            self.fraction = float(value("crop_fraction"))
            self.transformed = self.centre_crop
        else:
            self.transformed = self.squash

    def pixels_of(self, encoded):
        """Returns a JPEG, PNG or WebP file as `[height, width, 3]` 8-bit RGB."""
        try:
            image = Image.open(io.BytesIO(encoded), formats=FORMATS)
        except Exception as error:
            if not is_known_type(encoded):
                raise ImageError("is not a JPEG, PNG or WebP file") from error
            raise ImageError(f"cannot be decoded: {error}") from error
        width, height = image.size
        if width * height > self.max_pixels:
            raise ImageError(f"has {width} × {height} pixels, more than the limit of {self.max_pixels}")
        try:
            return np.asarray(self.transformed(upright(image, self.is_converted_first)).convert("RGB"))
        except Exception as error:
            raise ImageError(f"cannot be decoded: {error}") from error

    def shortest_edge(self, image):
        """Resizes the shortest side to `edge` and crops the centre, like torchvision's Resize and CenterCrop."""
        short = min(image.size)
        scaled = tuple(self.edge if side == short else int(self.edge * side / short) for side in image.size)
        left, top = (int(round((side - kept) / 2.0)) for side, kept in zip(scaled, self.size))
        if self.filter == "tensorflow-bilinear":
            return tensorflow_resized(image, scaled, (left, top), self.size)
        if scaled[0] * scaled[1] > self.max_pixels:
            # resize only the cropped region: a one-pixel line would become a very large image
            x, y = image.width / scaled[0], image.height / scaled[1]
            box = (left * x, top * y, (left + self.size[0]) * x, (top + self.size[1]) * y)
            return image.resize(self.size, PILLOW_FILTERS[self.filter], box=box)
        return self.resized(image, scaled).crop((left, top, left + self.size[0], top + self.size[1]))

    def squash(self, image):
        return self.resized(image, self.size)

    def letterbox(self, image):
        """Fits the image into the size and fills the rest, like Pillow's ImageOps.pad."""
        width, height = self.size
        if image.width / image.height > width / height:
            fitted = (width, max(1, round(image.height / image.width * width)))
        else:
            fitted = (max(1, round(image.width / image.height * height)), height)
        result = Image.new("RGB", self.size, self.fill)
        result.paste(
            self.resized(image, fitted).convert("RGB"),
            (round((width - fitted[0]) * 0.5), round((height - fitted[1]) * 0.5)),
        )
        return result

    def centre_crop(self, image):
        """Crops the square in the centre and resizes it, like TensorFlow's _decode_and_center_crop."""
        side = max(1, int(self.fraction * min(image.size)))
        left, top = ((length - side + 1) // 2 for length in image.size)
        return self.resized(image.crop((left, top, left + side, top + side)), self.size)

    def resized(self, image, size):
        if self.filter == "tensorflow-bilinear":
            return tensorflow_resized(image, size, (0, 0), size)
        return image.resize(size, PILLOW_FILTERS[self.filter])


def required(parameters, name):
    """Returns a parameter of config.pbtxt."""
    if name not in parameters:
        raise pb_utils.TritonModelException(f"parameter '{name}' must be set in config.pbtxt, got none")
    return parameters[name]["string_value"]


def is_known_type(encoded):
    return (
        encoded[:3] == b"\xff\xd8\xff"
        or encoded[:8] == b"\x89PNG\r\n\x1a\n"
        or (encoded[:4] == b"RIFF" and encoded[8:12] == b"WEBP")
    )


def upright(image, is_converted_first):
    """Returns the image in its EXIF orientation, in a mode that can be resized."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        # 16-bit grey: Pillow would clip it to 255 instead of scaling it
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if is_converted_first:
        return image.convert("RGB")
    if image.mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    if image.mode == "1":
        return image.convert("L")
    return image


def tensorflow_resized(image, size, start, kept):
    """Resizes like `resize_bilinear` of TensorFlow 1, to 8 bits after each axis like Pillow.

    Returns `kept` pixels from `start` of the result of `size`.
    """
    mode = PREMULTIPLIED.get(image.mode, image.mode)
    source = image.convert(mode)
    pixels = np.frombuffer(source.tobytes(), np.uint8).reshape(source.height, source.width, -1)
    for axis, index in ((1, 0), (0, 1)):
        length = pixels.shape[axis]
        positions = (start[index] + np.arange(kept[index])) * (length / size[index])
        lower = positions.astype(np.int64)
        upper = np.minimum(lower + 1, length - 1)
        # 22 fractional bits
        share = np.floor((positions - lower) * (1 << 22) + 0.5).astype(np.int64)
        rest = np.floor((1 - (positions - lower)) * (1 << 22) + 0.5).astype(np.int64)
        share, rest = (np.expand_dims(weights, (1 - axis, 2)) for weights in (share, rest))
        total = pixels.take(lower, axis) * rest + pixels.take(upper, axis) * share
        pixels = ((total + (1 << 21)) >> 22).clip(0, 255).astype(np.uint8)
    return Image.frombytes(mode, kept, pixels.tobytes()).convert(image.mode)


class TritonPythonModel:
    def initialize(self, args):
        self.preprocessing = Preprocessing(json.loads(args["model_config"]).get("parameters", {}))
        # Pillow releases the GIL while it decodes and resizes
        self.pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        encoded = pb_utils.get_input_tensor_by_name(request, "encoded").as_numpy()
        images = [self.pool.submit(self.preprocessing.pixels_of, item) for item in encoded.reshape(-1)]
        width, height = self.preprocessing.size
        pixels = np.empty((len(images), height, width, 3), dtype=np.uint8)
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
