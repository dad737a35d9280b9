"""Ranks texts with LlamaIndex's rerankers for TEI and Cohere: see cohere_rerank.py."""

from __future__ import annotations

import json
import sys

import cohere
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

job = json.load(sys.stdin)


def nodes() -> list[NodeWithScore]:
    """Returns the texts as nodes that are named by their indices."""
    return [NodeWithScore(node=TextNode(text=text, id_=str(index))) for index, text in enumerate(job["texts"])]


rankings, errors = {}, {}
for name, reranker in {
    "TEI": TextEmbeddingInference(base_url=job["url"], top_n=job["top_n"]),
    "Cohere": CohereRerank(model=job["model"], base_url=job["url"], api_key="any", top_n=job["top_n"]),
}.items():
    ranked = reranker.postprocess_nodes(nodes(), query_str=job["query"])
    rankings[name] = [(int(each.node.node_id), each.score) for each in ranked]
try:
    CohereRerank(model="unknown", base_url=job["url"], api_key="any").postprocess_nodes(nodes(), query_str=job["query"])
except cohere.errors.NotFoundError as error:
    errors["Cohere, unknown model"] = str(error)
try:
    TextEmbeddingInference(base_url=job["url"]).postprocess_nodes(nodes() * 20, query_str=job["query"])
except AssertionError as error:  # this client reads neither the status nor the message
    errors["TEI, too many texts"] = repr(error)
json.dump({"rankings": rankings, "errors": errors}, sys.stdout)
