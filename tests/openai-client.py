"""Uses OpenAI's client for Python, unmodified; every line of the output is one checked fact. Usage: openai-client.py PHOTO"""

import base64
import math
import pathlib
import sys

import openai

client = openai.OpenAI(max_retries=0)
photo = pathlib.Path(sys.argv[1]).read_bytes()
data_uri = "data:image/jpeg;base64," + base64.b64encode(photo).decode()
model = "openclip-vit-b32"


def same(first, second):
    return len(first) == len(second) and max(abs(a - b) for a, b in zip(first, second)) < 1e-6


def fails(error, **request):
    try:
        client.embeddings.create(**request)
    except error as found:
        return found
    raise AssertionError(f"expected {error.__name__}")


def report(fact, holds):
    assert holds, fact
    print(fact)


models = [entry.id for entry in client.models.list()]
report("lists the models", models[0] == model)
report("retrieves the model", client.models.retrieve(model).id == model)

texts = client.embeddings.create(model=model, input=["a red bicycle", "a lake"])
report("two texts", [entry.index for entry in texts.data] == [0, 1])
report("token ids", texts.usage.prompt_tokens == 5 + 4)
report("unit norm", abs(math.hypot(*texts.data[0].embedding) - 1) < 1e-5)

floats = client.embeddings.create(model=model, input="a lake", encoding_format="float")
report("base64 equals float", same(floats.data[0].embedding, texts.data[1].embedding))

images = client.embeddings.create(
    model=model, input=[data_uri, {"image": base64.b64encode(photo).decode()}, "a lake"]
)
report("data URI equals image object", same(images.data[0].embedding, images.data[1].embedding))
report("text beside images", same(images.data[2].embedding, texts.data[1].embedding))

tokens = fails(openai.BadRequestError, model=model, input=[[320, 736], [320]])
report("token ids are rejected", "token ids" in tokens.message and tokens.param == "input")
try:
    client.models.retrieve("text-embedding-3-small")
except openai.NotFoundError as error:
    report("unknown model to retrieve", error.code == "model_not_found")
unknown = fails(openai.NotFoundError, model="text-embedding-3-small", input="a lake")
report("unknown model", unknown.code == "model_not_found")
short = fails(openai.BadRequestError, model=model, input="a lake", dimensions=64)
report("no truncation", short.param == "dimensions")
url = fails(openai.BadRequestError, model=model, input=[{"image": "https://example.com/a.jpg"}])
report("no image URLs", "downloads no images" in url.message)
client = openai.OpenAI(api_key="another-key-of-enough-length", max_retries=0)
key = fails(openai.AuthenticationError, model=model, input="a lake")
report("wrong key", key.code == "invalid_api_key")
