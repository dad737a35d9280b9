"""Reads {"url", "model", "texts"} from stdin, embeds the texts with cohere's client, and prints the vectors as JSON."""

from __future__ import annotations

import json
import sys

import cohere

job = json.load(sys.stdin)
client = cohere.ClientV2(api_key="any", base_url=job["url"].removesuffix("/v1"))
answers = [
    client.embed(
        model=job["model"],
        input_type="search_document",
        texts=job["texts"][start : start + 96],
        embedding_types=["float", "ubinary"],
    )
    for start in range(0, len(job["texts"]), 96)
]
bits = [row for answer in answers for row in answer.embeddings.ubinary]
vectors = [row for answer in answers for row in answer.embeddings.float_]
assert [sum(byte.bit_count() for byte in row) for row in bits] == [sum(x > 0 for x in row) for row in vectors]
message = ""
try:
    client.embed(model=job["model"], texts=[""], input_type="search_query", embedding_types=["float"])
except cohere.errors.UnprocessableEntityError as error:
    message = error.body["message"]
assert message == "texts[0] is empty.", message
json.dump(vectors, sys.stdout)
