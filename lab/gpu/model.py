"""Model of Triton's Python backend that computes an image tower with an engine of engines.py.

Parameters of config.pbtxt: `engine`, `device`, `model_file`, `folder` (of engines.py) and `packages`, folders of Python packages, separated
by ':', because the backend's interpreter ignores PYTHONPATH.
"""

import json
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        sys.path.insert(0, parameters["folder"])
        sys.path.extend(filter(None, parameters["packages"].split(":")))
        from engines import open_engine

        self.engine = open_engine(parameters["engine"], parameters["model_file"], parameters["device"])
        self.input, self.output = config["input"][0]["name"], config["output"][0]["name"]

    def execute(self, requests):
        """Computes the images of all requests as one batch."""
        images = [pb_utils.get_input_tensor_by_name(request, self.input).as_numpy() for request in requests]
        result = self.engine.run(images[0] if len(images) == 1 else np.concatenate(images))
        ends = np.cumsum([len(image) for image in images])
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(self.output, np.ascontiguousarray(rows))])
            for rows in np.split(result, ends[:-1])
        ]
