"""Export a tower of a model, of images or of texts, to ONNX, and check the file against PyTorch.

The model is a model spec (JSON): input and output of the file have its names and shapes; the output is not normalised. Towers are those
of OpenCLIP and of Transformers (DINOv2, SigLIP 2). Prints a summary as one line of JSON. Exit codes: 0 success, 1 the file differs from
PyTorch, 2 usage error, or missing packages or files.
"""

import argparse
import contextlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path

# operator set by exporter: 17 is the first with LayerNormalization, 18 the oldest that PyTorch's newer exporter writes
opsets = {"torchscript": 17, "dynamo": 18}
batch_sizes = (1, 32)
# largest difference of a value of an embedding, relative to the largest value of that embedding
limit = 0.001
# configurations of Transformers for random weights, where the published config.json is unavailable
configurations = {
    "dinov2-small": dict(hidden_size=384, num_attention_heads=6),
    "dinov2-base": dict(hidden_size=768, num_attention_heads=12),
    "siglip2-base-224": dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12),
}
common_dinov2 = dict(num_hidden_layers=12, image_size=518, patch_size=14, mlp_ratio=4)
common_siglip = dict(image_size=224, patch_size=16)
numpy_types = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}


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
    weights.add_argument("--pretrained", metavar="TAG", help="published weights, by their name in open_clip; for Transformers, the name in the spec")
    weights.add_argument("--weights", metavar="FILE", help="a checkpoint of open_clip or Transformers: .safetensors, .pt, .bin")
    weights.add_argument("--random-weights", action="store_true", help="no internet; the embeddings are meaningless")
    parser.add_argument("--seed", type=int, default=1, help="seed of random weights")
    parser.add_argument("--spec", required=True, metavar="FILE", help="model spec, JSON")
    parser.add_argument("--modality", choices=["image", "text"], default="image")
    parser.add_argument(
        "--architecture",
        required=True,
        metavar="NAME",
        help="name in open_clip, such as ViT-B-32, or a model configuration of open_clip, .json; transformers: DINOv2 or SigLIP",
    )
    parser.add_argument("--profile", choices=["full", "tiny"], default="full", help="tiny is for tests")
    parser.add_argument("--exporter", choices=list(opsets), default="torchscript")
    parser.add_argument(
        "--inputs",
        required=True,
        metavar="FILE",
        help="images (float32) or texts (token ids) on which the file is compared with PyTorch, one after another",
    )
    parser.add_argument("--output", required=True, metavar="FILE")
    options = parser.parse_args()
    if options.profile == "tiny" and not options.random_weights:
        parser.error("--profile tiny requires --random-weights")
    options.spec = json.loads(Path(options.spec).read_text(encoding="utf-8"))
    options.facts = options.spec["towers"][options.modality]
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

    torch.backends.mha.set_fastpath_enabled(False)
    inputs = read_inputs(options)
    original, tower, name = towers_of(options)
    # the caller renames a file that ends in .part
    part = Path(options.output if options.output.endswith(".part") else f"{options.output}.part")
    tell(f"exporting the {options.modality} tower of {options.spec['name']} with the weights {name}")
    agrees = False
    try:
        write(tower, part, inputs, options)
        model = onnx.load(part, load_external_data=False)
        checks = [compare(original, part, inputs, batch, options) for batch in batch_sizes]
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
        "inputs": len(inputs),
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


def input_of(options):
    """Name, type and shape of the input, without the batch dimension."""
    facts = options.facts["input"]
    if options.modality == "text":
        return facts["tensor"], f"tensor({facts['idType']})", [facts["contextLength"]]
    if facts["layout"] != "nchw" or facts["channelOrder"] != "rgb":
        raise ExportError("the model must have an input with layout nchw and channelOrder rgb, as PyTorch's models do")
    return facts["tensor"], "tensor(float)", [3, facts["size"]["height"], facts["size"]["width"]]


def output_of(options):
    return options.facts["output"], options.spec["embedding"]["width"]


def read_inputs(options):
    """Returns the preprocessed images, [N, 3, height, width], or the token ids, [N, context length]."""
    import numpy
    import torch

    _, kind, shape = input_of(options)
    return torch.from_numpy(numpy.fromfile(options.inputs, numpy_types[kind]).reshape(-1, *shape))


def towers_of(options):
    """Returns the original tower, the tower that is exported, which computes the same, and the name of the weights."""
    import torch

    torch.manual_seed(options.seed)
    if options.architecture == "transformers":
        return transformers_towers(options)
    tower, name = open_clip_tower(options)
    if options.modality == "text":
        return tower, with_ids(tower, options), name
    if options.architecture.startswith("MobileCLIP"):
        from timm.utils import reparameterize_model

        return tower, reparameterize_model(tower), name
    return tower, tower, name


def with_ids(tower, options):
    """Returns a text tower whose input has the type of the spec's ids; PyTorch's models take int64."""
    import torch

    if options.facts["input"]["idType"] == "int64":
        return tower

    class Widened(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = tower

        def forward(self, ids):
            return self.tower(ids.long())

    return Widened()


def open_clip_architecture(given):
    """Returns the name of an architecture in open_clip; a configuration file is registered under its own name."""
    import open_clip

    name = given
    if given.endswith(".json"):
        if not Path(given).is_file():
            raise ExportError(f"--architecture: {given} is not a file")
        open_clip.add_model_config(given)
        name = Path(given).stem
    if name not in open_clip.list_models():
        raise ExportError(f"--architecture must be one of open_clip's, such as ViT-B-32, got '{given}'")
    return name


def new_open_clip_tower(architecture, modality):
    """Returns a tower of OpenCLIP, with the weights of its initialisation."""
    import open_clip

    # without it, the text tower of most models is not a module of its own
    model = open_clip.create_model(architecture, force_custom_text=modality == "text")
    return model.text if modality == "text" else model.visual


def open_clip_tower(options):
    """Returns a tower of OpenCLIP and the name of its weights."""
    import open_clip

    architecture = open_clip_architecture(options.architecture)
    modality = options.modality
    prefix = "text." if modality == "text" else "visual."
    if options.random_weights:
        tower = tiny(options) if options.profile == "tiny" else new_open_clip_tower(architecture, modality)
        if modality == "text" or "ViT" in architecture:
            randomise(tower)
        return tower.eval(), "random"
    if options.weights is not None:
        tower = new_open_clip_tower(architecture, modality)
        load(tower, options.weights, f"OpenCLIP's {architecture}", prefix)
        return tower.eval(), Path(options.weights).name
    tag = options.pretrained or options.spec["weights"]["name"]
    published = open_clip.get_pretrained_cfg(architecture, tag)
    if not published:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture))
        raise ExportError(f"--pretrained must be one of {tags}, got '{tag}'")
    if modality == "image":
        require_normalisation(options.facts["input"], published, tag)
    tell(f"fetching the weights {tag}, or reusing the cached file")
    try:
        file = open_clip.download_pretrained(published)
    except Exception as error:
        raise ExportError(
            f"the weights {tag} cannot be downloaded: {one_line(error)[:300]} "
            "(set HF_ENDPOINT to a mirror, or --weights to a file)"
        ) from error
    gelu = "-quickgelu" if published.get("quick_gelu") else ""
    tower = new_open_clip_tower(architecture + gelu, modality)
    load(tower, file, f"OpenCLIP's {architecture}", prefix)
    return tower.eval(), tag


def require_normalisation(image, published, tag):
    expected = [tuple(image[key]) for key in ("mean", "std")]
    if [tuple(published[key]) for key in ("mean", "std")] != expected:
        raise ExportError(f"--pretrained {tag}: its images must be normalised as in the spec: mean {expected[0]}, std {expected[1]}")


def transformers_towers(options):
    """Returns the pooled output of DINOv2 or of a tower of SigLIP."""
    import copy

    import torch

    model, name = transformers_model(options)
    model = model.eval()

    class Pooled(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, inputs):
            name = "input_ids" if options.modality == "text" else "pixel_values"
            return self.model(**{name: inputs}).pooler_output

    if options.modality == "text":
        return Pooled(model), with_ids(Pooled(model), options), name
    exported = copy.deepcopy(model)
    if hasattr(exported, "embeddings") and hasattr(exported.embeddings, "cls_token"):
        # DINOv2 resizes its positions to the input at run time; the file has those of its input size
        _, _, (_, height, width) = input_of(options)
        embeddings = exported.embeddings
        patches = (height // embeddings.patch_size) * (width // embeddings.patch_size)
        tokens = torch.zeros(1, patches + 1, embeddings.position_embeddings.shape[-1])
        with torch.no_grad():
            positions = embeddings.interpolate_pos_encoding(tokens, height, width)
        embeddings.interpolate_pos_encoding = lambda *_: positions
    return Pooled(model), Pooled(exported), name


def transformers_model(options):
    import transformers

    spec = options.spec
    is_text = options.modality == "text"
    is_dinov2 = spec["name"].startswith("dinov2")
    siglip = transformers.SiglipTextModel if is_text else transformers.SiglipVisionModel
    kind = transformers.Dinov2Model if is_dinov2 else siglip
    if options.weights is None and not options.random_weights:
        weights = spec["weights"]
        tell(f"fetching the weights {weights['repository']}, or reusing the cached file")
        try:
            model = kind.from_pretrained(
                weights["repository"], revision=weights["revision"], attn_implementation="eager"
            )
        except Exception as error:
            raise ExportError(
                f"the weights {weights['name']} cannot be downloaded: {one_line(error)[:300]} "
                "(set HF_ENDPOINT to a mirror, or --weights to a file)"
            ) from error
        return model, weights["name"]
    if spec["name"] not in configurations:
        raise ExportError(f"model must be one of {', '.join(configurations)}, got '{spec['name']}'")
    sizes = dict(configurations[spec["name"]])
    if options.profile == "tiny":
        # SigLIP's text tower has a projection to the width of the embedding
        width = 48 if is_text else spec["embedding"]["width"]
        sizes = dict(hidden_size=width, num_attention_heads=6, num_hidden_layers=1, intermediate_size=width)
    if is_dinov2:
        sizes.pop("intermediate_size", None)
        config = transformers.Dinov2Config(**{**common_dinov2, **sizes})
    elif is_text:
        facts = options.facts["input"]
        config = transformers.SiglipTextConfig(
            vocab_size=facts["vocabularySize"],
            max_position_embeddings=facts["contextLength"],
            projection_size=spec["embedding"]["width"],
            **sizes,
        )
    else:
        config = transformers.SiglipVisionConfig(**{**common_siglip, **sizes})
    config._attn_implementation = "eager"
    model = kind(config)
    if options.random_weights:
        randomise(model)
        return model, "random"
    prefix = "text_model." if is_text else "vision_model."
    load(model, options.weights, spec["name"], prefix="" if is_dinov2 else prefix)
    return model, Path(options.weights).name


def tiny(options):
    from open_clip.transformer import TextTransformer, VisionTransformer

    _, output_dim = output_of(options)
    common = dict(width=48, layers=2, heads=2, mlp_ratio=4, output_dim=output_dim)
    if options.modality == "text":
        facts = options.facts["input"]
        return TextTransformer(
            context_length=facts["contextLength"],
            vocab_size=facts["vocabularySize"],
            no_causal_mask=options.architecture.startswith("MobileCLIP"),
            **common,
        )
    _, _, (_, side, _) = input_of(options)
    return VisionTransformer(image_size=side, patch_size=32, **common)


def randomise(tower):
    """Uses larger values than the usual initialisation, with which all inputs have nearly the same embedding."""
    import torch

    for name, weights in tower.named_parameters():
        if weights.dim() == 1:
            torch.nn.init.normal_(weights, 1.0 if name.endswith(("weight", "lambda1")) else 0.0, 0.1)
        elif weights.dim() == 4:
            torch.nn.init.normal_(weights, 0, 4 / weights[0].numel() ** 0.5)
        else:
            torch.nn.init.normal_(weights, 0, 1.5 / weights.shape[-1] ** 0.5)


def load(tower, file, model, prefix):
    """Loads the weights of a complete model, or of this tower only."""
    from open_clip.factory import load_state_dict
    from open_clip.model import convert_to_custom_text_state_dict

    if not Path(file).is_file():
        raise ExportError(f"--weights: {file} is not a file")
    try:
        weights = load_state_dict(str(file))
    except Exception as error:
        raise ExportError(f"--weights: {file} is not a checkpoint: {one_line(error)[:300]}") from error
    if prefix == "text.":
        # most checkpoints of OpenCLIP have the tensors of the text tower beside `visual.`
        weights = convert_to_custom_text_state_dict(weights)
    own = {name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)}
    own = own or dict(weights)
    expected = tower.state_dict()
    for name, value in expected.items():
        if name not in own:
            raise ExportError(f"--weights: {file} has no '{prefix}{name}': it is not {model}")
        if own[name].shape != value.shape:
            shapes = [list(tensor.shape) for tensor in (value, own[name])]
            raise ExportError(f"--weights: {file}: '{prefix}{name}' must be {shapes[0]}, got {shapes[1]}")
    tower.load_state_dict({name: own[name] for name in expected})


def write(tower, file, inputs, options):
    import torch

    exporter = options.exporter
    (input_name, _, _), (output_name, _) = input_of(options), output_of(options)
    names = {"input_names": [input_name], "output_names": [output_name], "opset_version": opsets[exporter]}
    example = (inputs[:2],)
    # hides the output of the exporters
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        try:
            if exporter == "dynamo":
                batch = torch.export.Dim("batch", min=2, max=64)
                shapes = ({0: batch},)
                torch.onnx.export(
                    tower, example, file, dynamo=True, dynamic_shapes=shapes, external_data=False, **names
                )
            else:
                axes = {input_name: {0: "batch"}, output_name: {0: "batch"}}
                torch.onnx.export(tower, example, file, dynamo=False, dynamic_axes=axes, **names)
        except Exception as error:
            raise ExportError(f"PyTorch {torch.__version__} cannot export the tower: {one_line(error)[:300]}") from error
    declare_width(file, options)


def declare_width(file, options):
    """Writes the width of the output into the file, because the exporter does not infer it for every model."""
    import onnx

    model = onnx.load(file)
    width = model.graph.output[0].type.tensor_type.shape.dim[1]
    if not width.HasField("dim_value"):
        width.dim_value = output_of(options)[1]
        onnx.save(model, file)


def compare(tower, file, inputs, batch, options):
    """Compares the embeddings of all inputs with PyTorch's, in batches of this size."""
    import onnxruntime
    import torch

    tell(f"comparing with PyTorch at batch {batch}")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    signature = [(value.name, value.type, value.shape[1:]) for value in session.get_inputs() + session.get_outputs()]
    (input_name, kind, shape), (output_name, width) = input_of(options), output_of(options)
    expected = [(input_name, kind, shape), (output_name, "tensor(float)", [width])]
    if signature != expected:
        raise ExportError(f"the exported file has {signature}, expected {expected}")
    worst, least = 0.0, 1.0
    for first in range(0, len(inputs), batch):
        rows = [(first + i) % len(inputs) for i in range(batch)]
        with torch.no_grad():
            original = tower(inputs[rows]).double()
        exported = torch.from_numpy(session.run(None, {input_name: inputs[rows].numpy()})[0]).double()
        differences = (original - exported).abs().amax(1) / original.abs().amax(1)
        cosines = torch.nn.functional.cosine_similarity(original, exported)
        # max() would drop NaN
        worst = max(differences.max().item(), worst) if differences.isfinite().all() else float("inf")
        least = min(cosines.min().item(), least)
    return {"batch": batch, "maxDifference": worst, "minCosine": least}


if __name__ == "__main__":
    main()
