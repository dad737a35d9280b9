"""Ranks texts with Haystack's HuggingFaceTEIRanker: see cohere_rerank.py."""

from __future__ import annotations

import json
import sys

from haystack import Document
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker, TruncationDirection

job = json.load(sys.stdin)
documents = [Document(content=text, id=str(index)) for index, text in enumerate(job["texts"])]
ranker = HuggingFaceTEIRanker(url=job["url"], top_k=job["top_n"])
rankings, errors = {}, {}
for name, direction in {"default": None, "cut on the left": TruncationDirection.LEFT}.items():
    ranked = ranker.run(query=job["query"], documents=documents, truncation_direction=direction)["documents"]
    rankings[name] = [(int(each.id), each.score) for each in ranked]
try:
    ranker.run(query=job["query"], documents=[Document(content="a", id=str(index)) for index in range(201)])
except RuntimeError as error:
    errors["too many texts"] = str(error)
json.dump({"rankings": rankings, "errors": errors}, sys.stdout)
