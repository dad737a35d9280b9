"""Provokes errors with Haystack's HuggingFaceTEIRanker: see cohere_errors.py."""

from __future__ import annotations

import json
import sys

from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

job = json.load(sys.stdin)
errors: dict[str, str] = {}
for case, url, key in (
    ("no such key", job["url"], "any"),
    ("wrong model", job["labels_url"], job["key"]),
    ("overloaded", job["url"], job["poor_key"]),
):
    ranker = HuggingFaceTEIRanker(url=url, token=Secret.from_token(key), max_retries=1)
    try:
        ranker.run(query="q", documents=[Document(content="a")])
    except Exception as error:  # noqa: BLE001 - a RuntimeError, or an error of httpx
        errors[case] = f"{type(error).__name__} {error}"
assert HuggingFaceTEIRanker(url=job["url"]).run(query="q", documents=[]) == {"documents": []}  # without a request
json.dump({"errors": errors}, sys.stdout)
