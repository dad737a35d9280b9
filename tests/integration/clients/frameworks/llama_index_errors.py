"""Provokes errors with LlamaIndex's rerankers for TEI and Cohere: see cohere_errors.py.

The one for Cohere waits as Retry-After says.
"""

from __future__ import annotations

import json
import sys

import cohere
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

job = json.load(sys.stdin)
errors: dict[str, str] = {}
nodes = [NodeWithScore(node=TextNode(text=text)) for text in ("a", "b", "c", "d")]
for case, key, model in (
    ("Cohere, no such key", "any", job["model"]),
    ("Cohere, wrong model", job["key"], job["labels"]),
    ("Cohere, too few tokens", job["slow_key"], job["model"]),
    ("Cohere, too few tokens again", job["slow_key"], job["model"]),
):
    try:
        CohereRerank(model=model, base_url=job["url"], api_key=key).postprocess_nodes(nodes, query_str="q")
    except cohere.core.ApiError as error:
        errors[case] = f"{type(error).__name__} {error.status_code} {error.body['message']}"
for case, url, key in (
    ("TEI, no such key", job["url"], "any"),
    ("TEI, wrong model", job["labels_url"], job["key"]),
    ("TEI, overloaded", job["url"], job["poor_key"]),
):
    try:
        TextEmbeddingInference(base_url=url, auth_token=f"Bearer {key}").postprocess_nodes(nodes, query_str="q")
    except AssertionError as error:  # this client reads neither the status nor the message
        errors[case] = repr(error)
json.dump({"errors": errors}, sys.stdout)
