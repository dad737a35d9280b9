"""Embeds {"texts"} with cohere's first client, by both forms of answers: see cohere_client.py."""

from __future__ import annotations

import json
import sys

import cohere

job = json.load(sys.stdin)
client = cohere.Client(api_key="any", base_url=job["url"].removesuffix("/v1"))
answer = client.embed(model=job["model"], texts=job["texts"], input_type="search_document")  # 96 texts per request
assert answer.response_type == "embeddings_floats", answer.response_type
assert answer.texts == job["texts"]
assert answer.meta.billed_units.input_tokens == len(job["texts"]), answer.meta
typed = client.embed(model=job["model"], texts=job["texts"], embedding_types=["float", "ubinary"])
assert typed.response_type == "embeddings_by_type", typed.response_type
assert typed.embeddings.float == answer.embeddings
bits = [sum(byte.bit_count() for byte in row) for row in typed.embeddings.ubinary]
assert bits == [sum(number > 0 for number in row) for row in answer.embeddings]
message = ""
try:
    client.embed(model=job["model"], texts=[""])
except cohere.core.ApiError as error:
    message = error.body["message"]
assert message == "texts[0] is empty.", message
json.dump(answer.embeddings, sys.stdout)
