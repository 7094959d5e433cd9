"""Compute text embeddings with PyTorch, with the weights of a file that `clipstack model generate --modality text` wrote.

usage: text-tower-reference.py MODEL.onnx EXPORTED.onnx < input.json

input.json: {"spec": model spec, "family": "clip" or "siglip", "heads": number, "causal": boolean, "ids": rows of token ids}. The tower is
open_clip's TextTransformer or Transformers' SiglipTextModel. Also exports it to EXPORTED.onnx. Prints the rows of embeddings as JSON.
"""

import json
import logging
import sys
import warnings

import onnx
import torch
from onnx import numpy_helper

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
torch.backends.mha.set_fastpath_enabled(False)
file, exported = sys.argv[1:]
given = json.load(sys.stdin)
spec, heads = given["spec"], given["heads"]
text = spec["towers"]["text"]
initializers = onnx.load(file).graph.initializer
values = {value.name: torch.from_numpy(numpy_helper.to_array(value).copy()) for value in initializers}
vocabulary, width = values["token_embedding"].shape
context = text["input"]["contextLength"]
layers = 1 + max(int(name.split(".")[1]) for name in values if name.startswith("resblocks."))
hidden = values["resblocks.0.mlp.c_fc.weight"].shape[1]


def parts(block):
    """Weights and biases of queries, keys and values."""
    weights = values[f"{block}.attn.in_proj.weight"].T.chunk(3)
    return zip("qkv", weights, values[f"{block}.attn.in_proj.bias"].chunk(3))


def linear(state, name, source):
    state[f"{name}.weight"] = values[f"{source}.weight"].T
    state[f"{name}.bias"] = values[f"{source}.bias"]


def norm(state, name, source):
    state[f"{name}.weight"] = values[f"{source}.weight"]
    state[f"{name}.bias"] = values[f"{source}.bias"]


def open_clip_tower():
    from open_clip.transformer import TextTransformer

    tower = TextTransformer(
        context_length=context, vocab_size=vocabulary, width=width, heads=heads, layers=layers,
        mlp_ratio=hidden / width, output_dim=spec["embedding"]["width"], no_causal_mask=not given["causal"],
    )  # fmt: skip
    state = {
        "token_embedding.weight": values["token_embedding"],
        "positional_embedding": values["positional_embedding"],
        "text_projection": values["text_projection"],
    }
    norm(state, "ln_final", "ln_final")
    for layer in range(layers):
        source, block = f"resblocks.{layer}", f"transformer.resblocks.{layer}"
        norm(state, f"{block}.ln_1", f"{source}.ln_1")
        norm(state, f"{block}.ln_2", f"{source}.ln_2")
        state[f"{block}.attn.in_proj_weight"] = values[f"{source}.attn.in_proj.weight"].T
        state[f"{block}.attn.in_proj_bias"] = values[f"{source}.attn.in_proj.bias"]
        linear(state, f"{block}.attn.out_proj", f"{source}.attn.out_proj")
        linear(state, f"{block}.mlp.c_fc", f"{source}.mlp.c_fc")
        linear(state, f"{block}.mlp.c_proj", f"{source}.mlp.c_proj")
    tower.load_state_dict(state)
    return tower


class Pooled(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids).pooler_output


def siglip_tower():
    import transformers

    config = transformers.SiglipTextConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, max_position_embeddings=context, projection_size=spec["embedding"]["width"],
        attn_implementation="eager",
    )  # fmt: skip
    model = transformers.SiglipTextModel(config)
    # Transformers 5 has no prefix, 4 has `text_model.`
    prefix = "text_model." if any(name.startswith("text_model.") for name in model.state_dict()) else ""
    state = {
        "embeddings.token_embedding.weight": values["token_embedding"],
        "embeddings.position_embedding.weight": values["positional_embedding"],
        "head.weight": values["text_projection"].T,
        "head.bias": values["text_projection.bias"],
    }
    norm(state, "final_layer_norm", "ln_final")
    for layer in range(layers):
        source, block = f"resblocks.{layer}", f"encoder.layers.{layer}"
        norm(state, f"{block}.layer_norm1", f"{source}.ln_1")
        norm(state, f"{block}.layer_norm2", f"{source}.ln_2")
        for part, weight, bias in parts(source):
            state[f"{block}.self_attn.{part}_proj.weight"] = weight
            state[f"{block}.self_attn.{part}_proj.bias"] = bias
        linear(state, f"{block}.self_attn.out_proj", f"{source}.attn.out_proj")
        linear(state, f"{block}.mlp.fc1", f"{source}.mlp.c_fc")
        linear(state, f"{block}.mlp.fc2", f"{source}.mlp.c_proj")
    state = {prefix + name: value for name, value in state.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(name.endswith("position_ids") for name in missing), (missing, unexpected)
    return Pooled(model)


tower = (open_clip_tower() if given["family"] == "clip" else siglip_tower()).eval()
ids = torch.tensor(given["ids"])
names = {"input_names": [text["input"]["tensor"]], "output_names": [text["output"]]}
axes = {name: {0: "batch"} for [name] in names.values()}
with torch.no_grad():
    print(json.dumps(tower(ids).tolist()))
    torch.onnx.export(tower, (ids[:2],), exported, dynamo=False, opset_version=17, dynamic_axes=axes, **names)
