"""Provokes errors with both of Cohere's clients, and prints what each shows, as JSON by the name of client and case.

The job on stdin is {"url", "labels_url", "model", "labels", "long", "key", "poor_key", "slow_key"}: a gateway that
requires `key`, another one whose default model is a classifier, the names of a reranker, a classifier and a model for
which all texts are too long, and the keys of tenants with no tokens left, and with a few each second. The other scripts
that provoke errors read and print the same.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import cohere

job = json.load(sys.stdin)
errors: dict[str, str] = {}


def provoke(kind: Any, case: str, key: str, method: str, **fields: Any) -> None:  # noqa: ANN401 - its types are not installed here
    """Calls a method of a client of a kind, once, and records the error."""
    client = kind(api_key=key, base_url=job["url"])
    try:
        getattr(client, method)(**fields, request_options={"max_retries": 0})
    except cohere.core.ApiError as error:
        retry_after = (error.headers or {}).get("retry-after")
        shown = f"{type(error).__name__} {error.status_code} {error.body['message']} {retry_after or ''}"
        errors[f"{kind.__name__}, {case}"] = shown.strip()


for kind in (cohere.ClientV2, cohere.Client):
    ranked = {"model": job["model"], "query": "q", "documents": ["a"]}
    provoke(kind, "no documents", job["key"], "rerank", **{**ranked, "documents": []})
    provoke(kind, "wrong model", job["key"], "rerank", **{**ranked, "model": job["labels"]})
    provoke(kind, "no such key", "any", "rerank", **ranked)
    provoke(kind, "overloaded", job["poor_key"], "rerank", **ranked)
    types = {"embedding_types": ["float"]} if kind is cohere.ClientV2 else {"batching": False}
    embedded = {"model": job["long"], "texts": ["a"], "input_type": "search_document", "truncate": "NONE", **types}
    provoke(kind, "too long", job["key"], "embed", **embedded)
json.dump({"errors": errors}, sys.stdout)
