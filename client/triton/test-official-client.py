"""Calls a server with NVIDIA's client, unmodified, and prints the responses as one JSON object.

usage: test-official-client.py HTTP_HOST_PORT GRPC_HOST_PORT MODEL INPUT_FILE BATCH

INPUT_FILE contains BATCH x 3 x 224 x 224 float32 values, little endian.
"""

import json
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

http_url, grpc_url, model, input_file, batch = sys.argv[1:]
image = np.fromfile(input_file, dtype="<f4").reshape(int(batch), 3, 224, 224)


def infer(module, client, encode_input, output, **options):
    tensor = module.InferInput("image", list(image.shape), "FP32")
    encode_input(tensor)
    result = client.infer(model, [tensor], outputs=[output] if output else None, request_id="42", **options)
    if isinstance(result.get_response(), dict):
        response_id = result.get_response()["id"]
    else:
        response_id = result.get_response().id
    return {"id": response_id, "embedding": result.as_numpy("embedding").tolist()}


def rejection(call):
    try:
        call()
    except Exception as error:  # the error class depends on the protocol
        return str(error)
    return None


def call_http():
    with httpclient.InferenceServerClient(http_url) as client:
        wrong = httpclient.InferInput("imagee", list(image.shape), "FP32")
        wrong.set_data_from_numpy(image)
        binary = lambda tensor: tensor.set_data_from_numpy(image, binary_data=True)
        in_json = lambda tensor: tensor.set_data_from_numpy(image, binary_data=False)
        return {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "modelReady": client.is_model_ready(model),
            "serverMetadata": client.get_server_metadata(),
            "modelMetadata": client.get_model_metadata(model),
            "modelConfig": client.get_model_config(model),
            "repositoryIndex": client.get_model_repository_index(),
            "infer": {
                "binary": infer(httpclient, client, binary, httpclient.InferRequestedOutput("embedding")),
                "json": infer(httpclient, client, in_json, httpclient.InferRequestedOutput("embedding", binary_data=False)),
                "binary in, JSON out": infer(httpclient, client, binary, httpclient.InferRequestedOutput("embedding", binary_data=False)),
                "no outputs named": infer(httpclient, client, binary, None),
                "gzip": infer(
                    httpclient, client, binary, httpclient.InferRequestedOutput("embedding"),
                    request_compression_algorithm="gzip", response_compression_algorithm="gzip",
                ),
                "deflate": infer(
                    httpclient, client, binary, httpclient.InferRequestedOutput("embedding"),
                    request_compression_algorithm="deflate", response_compression_algorithm="deflate",
                ),
            },
            "rejection": rejection(lambda: client.infer(model, [wrong])),
            "load": rejection(lambda: client.load_model(model)),
            "statistics": client.get_inference_statistics(model),
        }


def call_grpc():
    with grpcclient.InferenceServerClient(grpc_url) as client:
        wrong = grpcclient.InferInput("imagee", list(image.shape), "FP32")
        wrong.set_data_from_numpy(image)
        raw = lambda tensor: tensor.set_data_from_numpy(image)
        responses = []
        client.start_stream(lambda result, error: responses.append((result, error)))
        tensor = grpcclient.InferInput("image", list(image.shape), "FP32")
        tensor.set_data_from_numpy(image)
        client.async_stream_infer(model, [tensor], request_id="first")
        client.async_stream_infer(model, [wrong], request_id="second")
        client.stop_stream()
        streamed, rejected = responses
        return {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "modelReady": client.is_model_ready(model),
            "serverMetadata": client.get_server_metadata(as_json=True),
            "modelMetadata": client.get_model_metadata(model, as_json=True),
            "modelConfig": client.get_model_config(model, as_json=True),
            "repositoryIndex": client.get_model_repository_index(as_json=True),
            "infer": {
                "raw": infer(grpcclient, client, raw, grpcclient.InferRequestedOutput("embedding")),
                "no outputs named": infer(grpcclient, client, raw, None),
                "gzip": infer(
                    grpcclient, client, raw, grpcclient.InferRequestedOutput("embedding"),
                    compression_algorithm="gzip",
                ),
                "stream": {
                    "id": streamed[0].get_response().id,
                    "embedding": streamed[0].as_numpy("embedding").tolist(),
                },
            },
            "streamRejection": str(rejected[1]),
            "rejection": rejection(lambda: client.infer(model, [wrong])),
            "load": rejection(lambda: client.load_model(model)),
            "statistics": client.get_inference_statistics(model, as_json=True),
        }


def describe(module):
    """Lists every message, field, enum and method of a .proto file, from the client's descriptors."""
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    lines = []

    def enum(path, descriptor):
        for value in descriptor.value:
            lines.append(f"enum {path}.{descriptor.name}.{value.name} = {value.number}")

    def message(path, descriptor):
        path = f"{path}.{descriptor.name}"
        for field in descriptor.field:
            kind = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)[5:].lower()
            label = "repeated " if field.label == field.LABEL_REPEATED else ""
            in_oneof = f" in {descriptor.oneof_decl[field.oneof_index].name}" if field.HasField("oneof_index") else ""
            lines.append(f"field {path}.{field.name} = {field.number} {label}{kind} {field.type_name}".rstrip() + in_oneof)
        for nested in descriptor.nested_type:
            message(path, nested)
        for nested in descriptor.enum_type:
            enum(path, nested)

    for descriptor in file.message_type:
        message(f".{file.package}", descriptor)
    for descriptor in file.enum_type:
        enum(f".{file.package}", descriptor)
    for service in file.service:
        for method in service.method:
            streams = f"{method.client_streaming} {method.server_streaming}"
            lines.append(f"method {service.name}.{method.name} {method.input_type} {method.output_type} {streams}")
    return sorted(lines)


print(
    json.dumps(
        {
            "http": call_http(),
            "grpc": call_grpc(),
            "descriptors": {
                "grpc_service.proto": describe(service_pb2),
                "model_config.proto": describe(model_config_pb2),
            },
        }
    )
)
