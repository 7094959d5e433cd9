"""Runs a model.py that preprocesses on image files, without Triton.

usage: preprocess-model-run.py MODEL_PY PARAMETERS_JSON OUT_FILE [IMAGE_FILE...]

The images form one batch. Writes the pixels to OUT_FILE and prints {"name", "shape", "dtype"} or {"error", "code"}; the code is
"LOAD" if the model cannot be loaded.
"""

import importlib.util
import json
import sys
import types

import numpy as np

backend = types.ModuleType("triton_python_backend_utils")


class Tensor:
    def __init__(self, name, value):
        self.name, self.value = name, value

    def as_numpy(self):
        return self.value


class TritonError:
    INVALID_ARG = "INVALID_ARG"

    def __init__(self, message, code=None):
        self.message, self.code = message, code


class TritonModelException(Exception):
    pass


class InferenceResponse:
    def __init__(self, output_tensors, error=None):
        self.output_tensors, self.error = output_tensors, error


def get_input_tensor_by_name(request, name):
    return next((tensor for tensor in request if tensor.name == name), None)


backend.Tensor = Tensor
backend.TritonError = TritonError
backend.TritonModelException = TritonModelException
backend.InferenceResponse = InferenceResponse
backend.get_input_tensor_by_name = get_input_tensor_by_name
sys.modules["triton_python_backend_utils"] = backend

path, parameters, out_file, *files = sys.argv[1:]
spec = importlib.util.spec_from_file_location("model", path)
module = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(module)

model = module.TritonPythonModel()
config = {"parameters": {name: {"string_value": value} for name, value in json.loads(parameters).items()}}
try:
    model.initialize({"model_config": json.dumps(config)})
except TritonModelException as error:
    print(json.dumps({"error": str(error), "code": "LOAD"}))
    sys.exit()
images = []
for file in files:
    with open(file, "rb") as image:
        images.append([image.read()])
request = [Tensor("encoded", np.array(images, dtype=np.object_).reshape(-1, 1))]
(response,) = model.execute([request])
model.finalize()
if response.error is not None:
    print(json.dumps({"error": response.error.message, "code": response.error.code}))
else:
    (tensor,) = response.output_tensors
    tensor.value.tofile(out_file)
    print(json.dumps({"name": tensor.name, "shape": tensor.value.shape, "dtype": str(tensor.value.dtype)}))
