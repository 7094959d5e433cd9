"""Serializes the preprocessing of a model as a DALI pipeline for Triton's DALI backend: image files to the model's input.

    python pipeline.py SPEC.json FOLDER      writes model.dali for GPUs and model.cpu.dali for CPUs into FOLDER

Prints the written files and the version of DALI as JSON. No GPU is required. The geometry is that of
inference/preprocess/resample-plan.mjs: computed from the size in the header of each image, with the roundings of each mode's
reference, instead of with the resize modes of DALI, which round differently.
"""

import json
import struct
import sys
from pathlib import Path

import nvidia.dali as dali
from nvidia.dali import fn, math, types
from nvidia.dali._utils.dali_trace import set_tracing

# otherwise the files contain the path of this program
set_tracing(enabled=False)

# file name and devices of the decoder and of the other operators
DEVICES = {"model.dali": "mixed", "model.cpu.dali": "cpu"}
# DALI's antialiased linear filter is the triangular filter that Pillow calls bilinear
FILTERS = {
    "bicubic": {"interp_type": types.INTERP_CUBIC, "antialias": True},
    "bilinear": {"interp_type": types.INTERP_LINEAR, "antialias": True},
    "tensorflow-bilinear": {"interp_type": types.INTERP_LINEAR, "antialias": False},
}
# replaced by `num_threads` in the model's configuration
THREADS = 4


def double(node):
    return fn.cast(node, dtype=types.FLOAT64)


def double_constant(value):
    """Constant in double precision: a sum of three, because constants of DALI are float32."""
    total = None
    for _ in range(3):
        part = struct.unpack("f", struct.pack("f", value))[0]
        node = double(types.Constant(part, dtype=types.FLOAT))
        total = node if total is None else total + node
        value -= part
    return total


def whole(node):
    """Converts a floating-point node without a fraction to integers."""
    return fn.cast(node, dtype=types.INT64)


def position(node):
    """Converts an integer node to the type of positions in `fn.slice`."""
    return fn.cast(node, dtype=types.INT32)


def half_to_even(node):
    """Half of an integer node, rounded like Python's round()."""
    half = node // 2
    return half + (node - 2 * half) * (half - 2 * (half // 2))


def rounded(node):
    """Rounds a double node like Python's round()."""
    floor = math.floor(node)
    rest = node - floor
    low = whole(floor)
    is_odd = low - 2 * (low // 2)
    return low + whole(rest > 0.5) + whole(rest == 0.5) * is_odd


class Geometry:
    """Resize and crop of one image input. Sizes and positions are `[height, width]` of the displayed image."""

    def __init__(self, spec):
        self.size = [spec["size"]["height"], spec["size"]["width"]]
        self.mode = spec["resize"]["mode"]
        self.resize = spec["resize"]
        self.filter = FILTERS[spec["filter"]]
        # TensorFlow 1 samples at the corner of a pixel instead of at its centre
        self.offset = 0.5 if spec["filter"] == "tensorflow-bilinear" else 0.0
        self.is_reversed = spec["channelOrder"] == "bgr"

    def apply(self, images, shape):
        if self.mode == "shortest-edge":
            return self.shortest_edge(images, shape)
        if self.mode == "letterbox":
            return self.letterbox(images, shape)
        if self.mode == "centre-crop":
            return self.centre_crop(images, shape)
        return self.resized(images, double(shape))

    def resized(self, images, length):
        """Resizes whole images of `length` to the size of the model."""
        scale = length / double(types.Constant(self.size, dtype=types.INT64))
        return self.region(images, length * 0.0, scale)

    def region(self, images, start, scale):
        """Resizes the part from `start`, at `scale` source pixels per result pixel; a one-pixel line would otherwise become huge."""
        start = start + self.offset * (1.0 - scale)
        end = start + double(types.Constant(self.size, dtype=types.INT64)) * scale
        region = {"roi_start": fn.cast(start, dtype=types.FLOAT), "roi_end": fn.cast(end, dtype=types.FLOAT)}
        return fn.resize(images, size=self.size, dtype=types.UINT8, **region, **self.filter)

    def shortest_edge(self, images, shape):
        """torchvision's Resize and CenterCrop."""
        short = fn.reductions.min(shape, axes=[0])
        scaled = (shape * self.resize["edge"]) // short
        begin = half_to_even(scaled - types.Constant(self.size, dtype=types.INT64))
        scale = double(shape) / double(scaled)
        return self.region(images, double(begin) * scale, scale)

    def centre_crop(self, images, shape):
        """TensorFlow's _decode_and_center_crop."""
        short = double(fn.reductions.min(shape, axes=[0]))
        span = math.max(whole(math.floor(short * double_constant(self.resize["fraction"]))), 1)
        start = (shape - span + 1) // 2
        square = fn.stack(span, span)
        cropped = fn.slice(images, start=position(start), shape=position(square), axes=(0, 1))
        return self.resized(cropped, double(square))

    def letterbox(self, images, shape):
        """Pillow's ImageOps.pad."""
        height, width = self.size
        aspect = double(shape[1]) / double(shape[0])
        is_wide = whole(shape[1] * height >= width * shape[0])
        is_tall = whole(shape[0] * width >= height * shape[1])
        fitted_width = math.max(rounded(aspect * float(height)), 1)
        fitted_height = math.max(rounded(double(shape[0]) / double(shape[1]) * float(width)), 1)
        fitted = fn.stack(
            fitted_height + is_tall * (height - fitted_height),
            fitted_width + is_wide * (width - fitted_width),
        )
        scale = double(shape) / double(fitted)
        start = self.offset * (1.0 - scale)
        images = fn.resize(
            images,
            size=fn.cast(fitted, dtype=types.FLOAT),
            dtype=types.UINT8,
            roi_start=fn.cast(start, dtype=types.FLOAT),
            roi_end=fn.cast(start + double(shape), dtype=types.FLOAT),
            **self.filter,
        )
        fill = self.resize["fill"][:: -1 if self.is_reversed else 1]
        begin = half_to_even(types.Constant(self.size, dtype=types.INT64) - fitted)
        padding = {"out_of_bounds_policy": "pad", "fill_values": [float(level) for level in fill]}
        return fn.slice(images, start=position(begin * -1), shape=self.size, axes=(0, 1), **padding)


def define(spec, batch, decoder):
    """Returns the pipeline of an image input for a device of the decoder."""
    maximum = {"0..1": 255.0, "0..255": 1.0}[spec["valueRange"]]

    # without a device: Triton passes its own, and no GPU is required here
    @dali.pipeline_def(batch_size=batch, num_threads=THREADS, device_id=None, output_dtype=[types.FLOAT], output_ndim=[3])
    def pipeline():
        encoded = fn.external_source(device="cpu", name="encoded", dtype=types.UINT8, ndim=1)
        # orientation included, as in the decoder
        shape = fn.peek_image_shape(encoded)[0:2]
        order = types.BGR if spec["channelOrder"] == "bgr" else types.RGB
        # nvJPEG's default upsampling of the chroma differs from libjpeg's
        images = fn.decoders.image(encoded, device=decoder, output_type=order, jpeg_fancy_upsampling=True)
        images = Geometry(spec).apply(images, shape)
        return fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW" if spec["layout"] == "nchw" else "HWC",
            mean=[level * maximum for level in spec["mean"]],
            std=[level * maximum for level in spec["std"]],
        )

    return pipeline()


def main(spec_file, folder):
    spec = json.loads(Path(spec_file).read_text())
    image = spec["towers"]["image"]["input"]
    for name, decoder in DEVICES.items():
        serialized = define(image, spec["batching"]["maximum"], decoder).serialize()
        Path(folder, name).write_bytes(serialized)
    print(json.dumps({"files": list(DEVICES), "dali": dali.__version__}))


if __name__ == "__main__":
    main(*sys.argv[1:])
