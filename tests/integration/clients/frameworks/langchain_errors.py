"""Provokes errors with LangChain's CohereRerank, which waits as Retry-After says: see cohere_errors.py."""

from __future__ import annotations

import json
import sys

import cohere
from langchain_cohere import CohereRerank

job = json.load(sys.stdin)
errors: dict[str, str] = {}
for case, key, model, documents in (
    ("no such key", "any", job["model"], ["a"]),
    ("wrong model", job["key"], job["labels"], ["a"]),
    ("too few tokens", job["slow_key"], job["model"], ["a"]),
    ("too few tokens again", job["slow_key"], job["model"], ["a"]),
):
    reranker = CohereRerank(model=model, base_url=job["url"], cohere_api_key=key)
    try:
        reranker.rerank(documents, "q")
    except cohere.core.ApiError as error:
        errors[case] = f"{type(error).__name__} {error.status_code} {error.body['message']}"
assert CohereRerank(model="m", base_url=job["url"], cohere_api_key="any").rerank([], "q") == []  # without a request
json.dump({"errors": errors}, sys.stdout)
