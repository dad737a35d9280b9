"""Provokes errors with Voyage's client: see cohere_errors.py."""

from __future__ import annotations

import json
import sys

import voyageai

job = json.load(sys.stdin)
errors: dict[str, str] = {}
for case, key, model in (
    ("no such key", "any", job["model"]),
    ("wrong model", job["key"], job["labels"]),
    ("too long", job["key"], job["long"]),
    ("overloaded", job["poor_key"], job["model"]),
):
    client = voyageai.Client(api_key=key, base_url=f"{job['url']}/v1", max_retries=1)
    try:
        client.rerank("q", ["a"], model=model, truncation=False)
    except voyageai.error.VoyageError as error:
        retry_after = (error.headers or {}).get("retry-after")
        errors[case] = f"{type(error).__name__} {error} {retry_after or ''}".strip()
json.dump({"errors": errors}, sys.stdout)
