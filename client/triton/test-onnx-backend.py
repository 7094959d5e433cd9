"""Runs an ONNX file in Triton's Python backend, for tests without the ONNX Runtime backend."""

import json
import os

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.outputs = [output["name"] for output in json.loads(args["model_config"])["output"]]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        (self.input,) = (value.name for value in self.session.get_inputs())

    def execute(self, requests):
        """Executes a batch of requests at once, as the ONNX Runtime backend does."""
        images = [pb_utils.get_input_tensor_by_name(request, self.input).as_numpy() for request in requests]
        results = self.session.run(self.outputs, {self.input: np.concatenate(images)})
        responses, start = [], 0
        for image in images:
            end = start + len(image)
            tensors = [
                pb_utils.Tensor(name, np.ascontiguousarray(result[start:end]))
                for name, result in zip(self.outputs, results)
            ]
            responses.append(pb_utils.InferenceResponse(output_tensors=tensors))
            start = end
        return responses
