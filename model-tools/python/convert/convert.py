"""Converts an ONNX model to half precision or 8-bit integers: convert.py fp16|int8 SOURCE TARGET

Input and output keep their types. Prints the versions of the tools as one line of JSON.

fp16: weights and computation in half precision. int8: products with a matrix of weights in 8-bit integers with one scale per
column; their inputs are quantised at run time. The product that reads the pixels stays in float32, because its error would be
the largest.
"""

import json
import logging
import platform
import sys

import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16

LAYOUT = {"Cast", "Reshape", "Transpose"}


def main(precision, source, target):
    logging.disable(logging.WARNING)
    if precision == "fp16":
        onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)
    else:
        quantize_dynamic(
            source,
            target,
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=["MatMul", "Gemm"],
            nodes_to_exclude=list(excluded(onnx.load(source).graph)),
        )
    versions = {"python": platform.python_version(), "onnx": onnx.__version__}
    print(json.dumps({**versions, "onnxruntime": onnxruntime.__version__}))


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
