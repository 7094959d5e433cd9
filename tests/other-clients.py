"""Uses LiteLLM, LlamaIndex and LangChain, unmodified; every line of the output is one checked fact. Usage: other-clients.py PHOTO"""

import base64
import os
import pathlib
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download at the import

import litellm
import openai
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

base_url, api_key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
model = "openclip-vit-b32"
photo = base64.b64encode(pathlib.Path(sys.argv[1]).read_bytes()).decode()
data_uri = "data:image/jpeg;base64," + photo
texts = ["a red bicycle", "a lake"]

client = openai.OpenAI(max_retries=0)
expected = [entry.embedding for entry in client.embeddings.create(model=model, input=[*texts, data_uri]).data]


def same(vectors, wanted):
    return len(vectors) == len(wanted) and all(
        max(abs(a - b) for a, b in zip(first, second)) < 1e-6 for first, second in zip(vectors, wanted)
    )


def report(fact, holds):
    assert holds, fact
    print(fact)


def with_litellm(inputs, **options):
    result = litellm.embedding(model=f"openai/{model}", input=inputs, api_base=base_url, api_key=api_key, **options)
    return [entry["embedding"] for entry in result.data]


report("LiteLLM: texts", same(with_litellm(texts), expected[:2]))
report("LiteLLM: encoding_format null", same(with_litellm(texts, encoding_format=None), expected[:2]))
report("LiteLLM: data URI", same(with_litellm([data_uri]), expected[2:]))

like = OpenAILikeEmbedding(model_name=model, api_base=base_url, api_key=api_key, max_retries=0)
report("LlamaIndex: texts", same(like.get_text_embedding_batch(texts), expected[:2]))
report("LlamaIndex: query", same([like.get_query_embedding(texts[0])], expected[:1]))
report("LlamaIndex: data URI", same([like.get_text_embedding(data_uri)], expected[2:]))

chain = OpenAIEmbeddings(model=model, check_embedding_ctx_length=False)
report("LangChain: texts", same(chain.embed_documents(texts), expected[:2]))
report("LangChain: data URI", same([chain.embed_query(data_uri)], expected[2:]))


def create(inputs=None, **body):
    """Request in the shape of another server's clients."""
    response = client.embeddings.with_raw_response.create(model=model, input=inputs or [], extra_body=body)
    return response.headers.get("warning"), [entry.embedding for entry in response.parse().data]


warning, jina = create([{"text": texts[0]}, {"image": photo}], task="retrieval", normalized=True)
report("Jina: text and image", same(jina, [expected[0], expected[2]]))
report("Jina: a warning names the task", warning == '299 - "ignored fields: task"')
report("infinity: modality", same(create([data_uri, photo], modality="image")[1], [expected[2]] * 2))
nim = create([texts[0], data_uri], input_type="query", modality=["text", "image"], truncate="NONE")[1]
report("NVIDIA NIM: input_type, modality, truncate", same(nim, [expected[0], expected[2]]))

part = {"type": "image_url", "image_url": {"url": data_uri}}
chat = [{"role": "user", "content": [{"type": "text", "text": ""}, part]}]
vllm = client.post(
    "/embeddings",
    cast_to=object,
    body={"model": model, "messages": chat, "truncate_prompt_tokens": -1, "encoding_format": "float"},
)
report("vLLM: messages of vllm bench", same([vllm["data"][0]["embedding"]], expected[2:]))
for silent in (photo, "https://example.com/photo.jpg"):
    try:
        client.embeddings.create(model=model, input=silent)
    except openai.BadRequestError as error:
        report("a string that is an image is rejected", '{"image": "…"}' in error.message)
