"""Prints the token ids of texts, as JSON, for comparison with tokenizer.ts.

usage: test-tokenizer-reference.py open-clip < texts.json
       test-tokenizer-reference.py sentencepiece MODEL < texts.json
       test-tokenizer-reference.py train-sentencepiece MODEL VOCABULARY_SIZE < texts.json

texts.json is a list of strings. open-clip prints the rows of open_clip's tokenizer, 77 ids each, without importing PyTorch. sentencepiece prints
the ids of each text, and train-sentencepiece writes a model and an empty list.
"""

import functools
import importlib.util
import json
import sys
import types
from pathlib import Path


def open_clip_tokenizer():
    """Loads open_clip's tokenizer.py, without ftfy's repair of broken encodings.

    Its package would import PyTorch, of which the tokenizer only uses a matrix.
    """
    import ftfy
    import numpy

    ftfy.fix_text = functools.partial(ftfy.fix_text, config=ftfy.TextFixerConfig(fix_encoding=False))

    torch = types.ModuleType("torch")
    torch.LongTensor = torch.Tensor = object
    torch.long = numpy.int64
    torch.zeros = lambda *shape, dtype: numpy.zeros(shape, dtype)
    torch.tensor = lambda values: values
    sys.modules["torch"] = torch
    [folder] = importlib.util.find_spec("open_clip").submodule_search_locations
    path = Path(folder) / "tokenizer.py"
    spec = importlib.util.spec_from_file_location("open_clip_tokenizer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SimpleTokenizer()


def main():
    command, *arguments = sys.argv[1:]
    texts = json.load(sys.stdin)
    if command == "open-clip":
        ids = open_clip_tokenizer()(texts).tolist()
    elif command == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        ids = SentencePieceProcessor(model_file=arguments[0]).encode(texts)
    elif command == "train-sentencepiece":
        from sentencepiece import SentencePieceTrainer

        SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_prefix=arguments[0].removesuffix(".model"),
            vocab_size=int(arguments[1]),
            # as Gemma's model, which SigLIP 2 uses
            model_type="bpe",
            byte_fallback=True,
            split_digits=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            pad_id=0,
            eos_id=1,
            bos_id=2,
            unk_id=3,
            num_threads=1,
        )
        ids = []
    else:
        sys.exit(__doc__)
    json.dump(ids, sys.stdout, separators=(",", ":"))


main()
