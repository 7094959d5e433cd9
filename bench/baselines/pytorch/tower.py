"""Image tower of OpenCLIP in PyTorch, with the weights of an ONNX file."""

import onnx
import torch
from onnx import numpy_helper
from open_clip.transformer import QuickGELU, VisionTransformer

# of open_clip's vision transformers; the tiny tower of `clipstack model generate` is narrower, and has two heads
HEAD_WIDTH = 64
TINY_HEADS = 2

BLOCK = (
    "ln_1.weight",
    "ln_1.bias",
    "attn.in_proj_weight",
    "attn.in_proj_bias",
    "attn.out_proj.weight",
    "attn.out_proj.bias",
    "ln_2.weight",
    "ln_2.bias",
    "mlp.c_fc.weight",
    "mlp.c_fc.bias",
    "mlp.c_proj.weight",
    "mlp.c_proj.bias",
)
BEFORE_BLOCKS = ("conv1.weight", "class_embedding", "positional_embedding", "ln_pre.weight", "ln_pre.bias")
AFTER_BLOCKS = ("ln_post.weight", "ln_post.bias", "proj")


class NotOpenClip(Exception):
    """The file has other weights than a vision transformer of OpenCLIP."""


def load_tower(file: str) -> VisionTransformer:
    """Returns the tower of a file that `clipstack model generate`, `pull` or `export` has written.

    Exporters rename matrices, but all of them use the weights in the order of the forward pass. Shapes are compared; whether the tower
    computes the same as the file is for the caller to check, on embeddings.
    """
    graph = onnx.load(file).graph
    weights = weights_in_order(graph)
    rest = len(weights) - len(BEFORE_BLOCKS) - len(AFTER_BLOCKS)
    # some files add the class token to the first position
    has_token = rest % len(BLOCK) == 0
    layers = (rest if has_token else rest + 1) // len(BLOCK)
    names = [
        *[name for name in BEFORE_BLOCKS if has_token or name != "class_embedding"],
        *[f"transformer.resblocks.{layer}.{name}" for layer in range(layers) for name in BLOCK],
        *AFTER_BLOCKS,
    ]
    if layers < 1 or len(names) != len(weights) or weights[0].dim() != 4:
        raise NotOpenClip(f"{file}: must have the weights of a vision transformer of OpenCLIP, got {len(weights)} tensors")
    state = dict(zip(names, weights))
    tower = tower_like(state, layers, quick_gelu=any(node.op_type == "Sigmoid" for node in graph.node))
    expected = tower.state_dict()
    state.setdefault("class_embedding", torch.zeros_like(expected["class_embedding"]))
    for name, value in state.items():
        if len(value.shape) == 2 and name.endswith("weight"):
            value = value.T  # [from, to] in the graph
        value = value.squeeze() if name in ("class_embedding", "positional_embedding") else value
        if value.shape != expected[name].shape:
            shapes = f"{list(expected[name].shape)}, got {list(value.shape)}"
            raise NotOpenClip(f"{file}: {name} must be {shapes}")
        state[name] = value.contiguous()
    tower.load_state_dict(state)
    return tower.eval()


def weights_in_order(graph: onnx.GraphProto) -> list[torch.Tensor]:
    """Returns the weights in the order of their use, without scalars; matrices are [from, to]."""
    constants = {value.name: value for value in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
        # a name for equal weights, which exporters store once
        if node.op_type == "Identity" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
    found = []
    for node in graph.node:
        if node.op_type == "Identity":
            continue
        for name in node.input:
            value = constants.get(name)
            if value is None or value.data_type != onnx.TensorProto.FLOAT:
                continue
            tensor = torch.from_numpy(numpy_helper.to_array(value).copy())
            if tensor.numel() == 1:
                continue
            stored_transposed = node.op_type == "Gemm" and any(it.name == "transB" and it.i for it in node.attribute)
            found.append(tensor.T if stored_transposed and tensor.dim() == 2 else tensor)
    return found


def tower_like(state: dict[str, torch.Tensor], layers: int, quick_gelu: bool) -> VisionTransformer:
    """Returns a tower whose sizes are those of the weights."""
    width, _, patch, _ = state["conv1.weight"].shape
    tokens = state["positional_embedding"].shape[-2]
    return VisionTransformer(
        image_size=round((tokens - 1) ** 0.5) * patch,
        patch_size=patch,
        width=width,
        layers=layers,
        heads=width // HEAD_WIDTH or TINY_HEADS,
        mlp_ratio=state["transformer.resblocks.0.mlp.c_fc.weight"].shape[1] / width,
        output_dim=state["proj"].shape[1],
        act_layer=QuickGELU if quick_gelu else torch.nn.GELU,
    )
