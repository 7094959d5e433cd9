"""Converts an ONNX model to half precision or 8-bit integers: convert.py fp16|int8 SOURCE TARGET [CALIBRATION]

Input and output keep their types. Prints the versions of the tools as one line of JSON.

fp16: weights and computation in half precision. int8 for transformers: products with a matrix of weights in 8-bit integers with one
scale per column; their inputs are quantised at run time. The product that reads the pixels stays in float32, because its error would be
the largest. int8 for convolutional networks: convolutions and the operators between them in 8-bit integers with one scale per channel;
the first layers stay in float32; the ranges of the
inputs are measured on the images of CALIBRATION: values of the input, without batch dimension, one after another.
"""

import contextlib
import json
import logging
import os
import platform
import sys

import numpy
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

LAYOUT = {"Cast", "Reshape", "Transpose"}
CONVOLUTIONAL = ["Conv", "Clip", "Add", "GlobalAveragePool"]


def main(precision, source, target, calibration=None):
    logging.disable(logging.WARNING)
    model = onnx.load(source)
    if precision == "fp16":
        half = OnnxModel(convert_float_to_float16(model, keep_io_types=True))
        # the converter appends its casts at the end; ONNX requires topological order
        half.topological_sort()
        onnx.save(half.model, target)
    elif is_convolutional(model.graph):
        quantize_convolutions(source, target, model.graph, calibration)
    else:
        quantize_dynamic(
            source,
            target,
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=["MatMul", "Gemm"],
            nodes_to_exclude=list(excluded(model.graph)),
        )
    versions = {"python": platform.python_version(), "onnx": onnx.__version__}
    print(json.dumps({**versions, "onnxruntime": onnxruntime.__version__}))


def is_convolutional(graph):
    """Vision transformers have one convolution, for the patches."""
    return sum(node.op_type == "Conv" for node in graph.node) > 1


def quantize_convolutions(source, target, graph, calibration):
    if calibration is None:
        sys.exit("CALIBRATION is required for a convolutional network")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        quantize_static(
            source,
            target,
            Images(graph.input[0], calibration),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
            op_types_to_quantize=CONVOLUTIONAL,
            nodes_to_exclude=list(high_resolution(graph)),
        )


def high_resolution(graph):
    """Names of the operators before the second reduction of the resolution, which stay in float32: their errors are the largest."""
    reductions = 0
    for node in graph.node:
        if node.op_type == "Conv":
            strides = next((list(item.ints) for item in node.attribute if item.name == "strides"), [])
            reductions += any(stride > 1 for stride in strides)
        if reductions > 1:
            return
        yield node.name


class Images(CalibrationDataReader):
    """Images of a file, one per batch."""

    def __init__(self, image, file):
        shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim][1:]
        values = numpy.fromfile(file, onnx.helper.tensor_dtype_to_np_dtype(image.type.tensor_type.elem_type))
        self.batches = iter([{image.name: batch} for batch in values.reshape(-1, 1, *shape)])

    def get_next(self):
        return next(self.batches, None)


def excluded(graph):
    """Names of the products that stay in float32: the one that reads the pixels, and those whose weight is not a matrix."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    pixels = {value.name for value in graph.input}
    for node in graph.node:
        reads_pixels = node.input[0] in pixels if node.input else False
        if reads_pixels and node.op_type in LAYOUT:
            pixels.update(node.output)
        if node.op_type in {"MatMul", "Gemm"}:
            if reads_pixels or ranks.get(node.input[1], 2) != 2:
                yield node.name


if __name__ == "__main__":
    main(*sys.argv[1:])
