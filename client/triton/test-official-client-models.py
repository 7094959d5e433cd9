"""Calls a server that loads models on request with NVIDIA's client, unmodified, and prints one JSON object.

usage: test-official-client-models.py HTTP_HOST_PORT GRPC_HOST_PORT INPUT_FOLDER

INPUT_FOLDER contains one image in three payload formats: `pixels`, 224 x 224 x 3 bytes of RGB; `tensor`, normalised, 3 x 224 x 224
float32; and `file`, an image file. The models for all three return the same embedding.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

http_url, grpc_url, folder = sys.argv[1:]
tensor = np.frombuffer(Path(folder, "tensor").read_bytes(), dtype="<f4").reshape(1, 3, 224, 224)
pixels = np.frombuffer(Path(folder, "pixels").read_bytes(), dtype=np.uint8).reshape(1, 224, 224, 3)
file = np.array([[Path(folder, "file").read_bytes()]], dtype=np.object_)

FP32, UINT8, BYTES = "openclip_vit_b32", "openclip_vit_b32_u8", "openclip_vit_b32_jpeg"
PARTS = ["openclip_vit_b32_preprocess", UINT8, BYTES]


def infer(module, client, model, kind, data, binary_in=None, binary_out=None):
    item = module.InferInput("image", list(data.shape), kind)
    item.set_data_from_numpy(data, **({} if binary_in is None else {"binary_data": binary_in}))
    output = module.InferRequestedOutput("embedding", **({} if binary_out is None else {"binary_data": binary_out}))
    return client.infer(model, [item], outputs=[output]).as_numpy("embedding").reshape(-1).tolist()


def embeddings(module, client):
    encodings = {"": (None, None)} if module is grpcclient else {
        " binary": (True, True),
        " JSON": (False, False),
        " JSON in, binary out": (False, True),
    }
    found = {}
    for encoding, (binary_in, binary_out) in encodings.items():
        for model, kind, data in ((FP32, "FP32", tensor), (UINT8, "UINT8", pixels)):
            found[kind + encoding] = infer(module, client, model, kind, data, binary_in, binary_out)
    # JSON cannot represent bytes that are not text
    found["BYTES"] = infer(module, client, BYTES, "BYTES", file)
    return found


def config_of(client):
    config = client.get_model_config(UINT8, **({"as_json": True} if isinstance(client, grpcclient.InferenceServerClient) else {}))
    return config.get("config", config)


def delay_of(client):
    return int(config_of(client)["dynamic_batching"].get("max_queue_delay_microseconds", 0))


def count_of(client):
    statistics = client.get_inference_statistics(UINT8, **({"as_json": True} if isinstance(client, grpcclient.InferenceServerClient) else {}))
    return int(statistics["model_stats"][0]["inference_stats"]["success"].get("count", 0))


def rejection(call):
    try:
        call()
    except Exception as error:  # the error class depends on the protocol
        return str(error)
    return None


def call_all(module, client):
    before = {model: client.is_model_ready(model) for model in PARTS}
    for model in PARTS:
        client.load_model(model)
    loaded = {model: client.is_model_ready(model) for model in PARTS}
    found = embeddings(module, client)
    first = delay_of(client)
    override = config_of(client)
    override["dynamic_batching"]["max_queue_delay_microseconds"] = first + 77
    client.load_model(UINT8, config=json.dumps(override))
    second = delay_of(client)
    found["UINT8 after an override"] = infer(module, client, UINT8, "UINT8", pixels)
    counted = count_of(client)
    client.load_model(UINT8)
    third = delay_of(client)
    client.unload_model(UINT8)
    client.load_model(UINT8)
    fourth = delay_of(client)
    for model in reversed(PARTS):
        client.unload_model(model)
    gone = rejection(lambda: infer(module, client, UINT8, "UINT8", pixels))
    return {
        "before": before,
        "loaded": loaded,
        "embeddings": found,
        "delays": [second - first, third - first, fourth - first],
        "counted": counted,
        "after": {model: client.is_model_ready(model) for model in PARTS},
        "rejection": gone,
        "wrongConfig": rejection(lambda: client.load_model(UINT8, config="{")),
    }


with httpclient.InferenceServerClient(http_url) as http, grpcclient.InferenceServerClient(grpc_url) as grpc:
    print(json.dumps({"http": call_all(httpclient, http), "grpc": call_all(grpcclient, grpc)}))
