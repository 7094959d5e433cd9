"""Export the image tower of OpenCLIP ViT-B/32 to ONNX, and check the file against PyTorch.

The input is `image` FP32 [batch, 3, 224, 224], CLIP-normalised RGB; the output is `embedding` FP32 [batch, 512], not
normalised. Prints a summary as one line of JSON. Exit codes: 0 success, 1 the file differs from PyTorch, 2 usage error, or
missing packages or files.
"""

import argparse
import contextlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path

architecture = "ViT-B-32"
side = 224
# operator set by exporter: 17 is the first with LayerNormalization, 18 the oldest that PyTorch's newer exporter writes
opsets = {"torchscript": 17, "dynamo": 18}
batch_sizes = (1, 32)
# largest difference of a value of an embedding, relative to the largest value of that embedding
limit = 0.001
image_types = {".jpg", ".jpeg", ".png", ".webp"}


class ExportError(Exception):
    """One-line error that the user can fix."""


def main():
    options = parse()
    try:
        result = run(options)
    except ImportError as error:
        what = "leave --python out, or install model-tools/python/export/requirements.txt and torch-pypi.txt"
        fail(2, f"{sys.executable} has no {error.name}: {what}")
    except ExportError as error:
        fail(2, error)
    except OSError as error:
        fail(2, f"{error.filename or options.output}: {error.strerror or one_line(error)}")
    print(json.dumps(result))
    worst = max(check["maxDifference"] for check in result["checks"])
    # also true for NaN
    if not worst <= limit:
        fail(1, f"the file differs from PyTorch by {worst:.3%}, more than {limit:.1%}: the file was discarded")


def fail(code, message):
    print(f"export: {one_line(message)}", file=sys.stderr)
    sys.exit(code)


def one_line(message):
    return " ".join(str(message).split())


def tell(message):
    print(message, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument("--pretrained", metavar="TAG", help="published weights, by their name in open_clip")
    weights.add_argument("--weights", metavar="FILE", help="a checkpoint of open_clip: .safetensors, .pt, .bin")
    weights.add_argument("--random-weights", action="store_true", help="no internet; the embeddings are meaningless")
    parser.add_argument("--seed", type=int, default=1, help="seed of random weights")
    parser.add_argument("--profile", choices=["vit-b-32", "tiny"], default="vit-b-32", help="tiny is for tests")
    parser.add_argument("--exporter", choices=list(opsets), default="torchscript")
    parser.add_argument("--images", required=True, metavar="FOLDER", help="images on which the file is compared with PyTorch")
    parser.add_argument("--output", required=True, metavar="FILE")
    options = parser.parse_args()
    if options.profile == "tiny" and not options.random_weights:
        parser.error("--profile tiny requires --random-weights")
    return options


def run(options):
    # Python searches this folder first, so a file in it could shadow a package
    sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent.resolve()]
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    tell("loading PyTorch")
    import onnx
    import onnxruntime
    import open_clip
    import torch

    images = read_images(options.images)
    tower, name = tower_of(options)
    # the caller renames a file that ends in .part
    part = Path(options.output if options.output.endswith(".part") else f"{options.output}.part")
    tell(f"exporting the tower of {options.profile} with the weights {name}")
    agrees = False
    try:
        write(tower, part, options.exporter)
        model = onnx.load(part, load_external_data=False)
        checks = [compare(tower, part, images, batch) for batch in batch_sizes]
        agrees = all(check["maxDifference"] <= limit for check in checks)
    finally:
        if not agrees:
            part.unlink(missing_ok=True)
    if agrees:
        part.replace(options.output)
    return {
        "schema": 1,
        "profile": options.profile,
        "weights": name,
        "seed": options.seed if options.random_weights else None,
        "exporter": options.exporter,
        "opset": next(opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")),
        "images": len(images),
        "limit": limit,
        "checks": checks,
        "versions": {
            "python": ".".join(map(str, sys.version_info[:3])),
            "torch": torch.__version__,
            "open_clip": open_clip.__version__,
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
    }


def read_images(folder):
    """Returns the images, preprocessed by OpenCLIP's transform: [N, 3, 224, 224]."""
    import open_clip
    import torch
    from PIL import Image

    files = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in image_types)
    if not files:
        raise ExportError(f"--images: {folder} has no JPEG, PNG or WebP file")
    transform = open_clip.image_transform(side, is_train=False)
    tensors = []
    for file in files[: max(batch_sizes)]:
        try:
            with Image.open(file) as image:
                tensors.append(transform(image))
        except Exception as error:
            raise ExportError(f"--images: {file} cannot be read: {one_line(error)}") from error
    return torch.stack(tensors)


def tower_of(options):
    """Returns the tower and the name of its weights."""
    import open_clip
    import torch

    if options.random_weights:
        torch.manual_seed(options.seed)
        tower = tiny() if options.profile == "tiny" else open_clip.create_model(architecture).visual
        randomise(tower)
        return tower.eval(), "random"
    if options.weights is not None:
        tower = open_clip.create_model(architecture).visual
        load(tower, options.weights)
        return tower.eval(), Path(options.weights).name
    tag = options.pretrained or "laion2b_s34b_b79k"
    published = open_clip.get_pretrained_cfg(architecture, tag)
    if not published:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture))
        raise ExportError(f"--pretrained must be one of {tags}, got '{tag}'")
    if tuple(published["mean"]) != open_clip.OPENAI_DATASET_MEAN:
        raise ExportError(f"--pretrained {tag}: its images must be normalised like CLIP's")
    tell(f"fetching the weights {tag}, or reusing the cached file")
    try:
        file = open_clip.download_pretrained(published)
    except Exception as error:
        raise ExportError(
            f"the weights {tag} cannot be downloaded: {one_line(error)[:300]} "
            "(set HF_ENDPOINT to a mirror, or --weights to a file)"
        ) from error
    gelu = "-quickgelu" if published.get("quick_gelu") else ""
    tower = open_clip.create_model(architecture + gelu).visual
    load(tower, file)
    return tower.eval(), tag


def tiny():
    from open_clip.transformer import VisionTransformer

    return VisionTransformer(
        image_size=side, patch_size=32, width=48, layers=2, heads=2, mlp_ratio=4, output_dim=512
    )


def randomise(tower):
    """Uses larger values than open_clip's initialisation, with which all images have nearly the same embedding."""
    import torch

    for name, weights in tower.named_parameters():
        if weights.dim() == 1:
            torch.nn.init.normal_(weights, 1.0 if name.endswith("weight") else 0.0, 0.1)
        elif "conv1" in name:
            torch.nn.init.normal_(weights, 0, 4 / 3072**0.5)
        else:
            torch.nn.init.normal_(weights, 0, 1.5 / weights.shape[-1] ** 0.5)


def load(tower, file):
    """Loads the weights of a complete CLIP model, or of its image tower only."""
    from open_clip.factory import load_state_dict

    if not Path(file).is_file():
        raise ExportError(f"--weights: {file} is not a file")
    try:
        weights = load_state_dict(str(file))
    except Exception as error:
        raise ExportError(f"--weights: {file} is not a checkpoint: {one_line(error)[:300]}") from error
    prefix = "visual."
    visual = {name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)}
    visual = visual or dict(weights)
    expected = tower.state_dict()
    for name, value in expected.items():
        if name not in visual:
            raise ExportError(f"--weights: {file} has no '{prefix}{name}': it is not OpenCLIP's {architecture}")
        if visual[name].shape != value.shape:
            shapes = [list(tensor.shape) for tensor in (value, visual[name])]
            raise ExportError(f"--weights: {file}: '{prefix}{name}' must be {shapes[0]}, got {shapes[1]}")
    tower.load_state_dict({name: visual[name] for name in expected})


def write(tower, file, exporter):
    import torch

    # ONNX has no equivalent of the fused attention operator
    torch.backends.mha.set_fastpath_enabled(False)
    names = {"input_names": ["image"], "output_names": ["embedding"], "opset_version": opsets[exporter]}
    image = torch.randn(2, 3, side, side)
    # hides the output of the exporters
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        try:
            if exporter == "dynamo":
                batch = torch.export.Dim("batch", min=2, max=64)
                shapes = ({0: batch},)
                torch.onnx.export(
                    tower, (image,), file, dynamo=True, dynamic_shapes=shapes, external_data=False, **names
                )
            else:
                axes = {"image": {0: "batch"}, "embedding": {0: "batch"}}
                torch.onnx.export(tower, (image,), file, dynamo=False, dynamic_axes=axes, **names)
        except Exception as error:
            raise ExportError(f"PyTorch {torch.__version__} cannot export the tower: {one_line(error)[:300]}") from error


def compare(tower, file, images, batch):
    """Compares the embeddings of all images with PyTorch's, in batches of this size."""
    import onnxruntime
    import torch

    tell(f"comparing with PyTorch at batch {batch}")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    signature = [(value.name, value.type, value.shape[1:]) for value in session.get_inputs() + session.get_outputs()]
    expected = [("image", "tensor(float)", [3, side, side]), ("embedding", "tensor(float)", [512])]
    if signature != expected:
        raise ExportError(f"the exported file has {signature}, expected {expected}")
    worst, least = 0.0, 1.0
    for first in range(0, len(images), batch):
        rows = [(first + i) % len(images) for i in range(batch)]
        with torch.no_grad():
            original = tower(images[rows]).double()
        exported = torch.from_numpy(session.run(None, {"image": images[rows].numpy()})[0]).double()
        differences = (original - exported).abs().amax(1) / original.abs().amax(1)
        cosines = torch.nn.functional.cosine_similarity(original, exported)
        # max() would drop NaN
        worst = max(differences.max().item(), worst) if differences.isfinite().all() else float("inf")
        least = min(cosines.min().item(), least)
    return {"batch": batch, "maxDifference": worst, "minCosine": least}


if __name__ == "__main__":
    main()
