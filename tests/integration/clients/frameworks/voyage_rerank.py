"""Ranks texts with Voyage's client: see cohere_rerank.py."""

from __future__ import annotations

import json
import sys

import voyageai

job = json.load(sys.stdin)
client = voyageai.Client(api_key="any", base_url=f"{job['url']}/v1")
answer = client.rerank(job["query"], job["texts"], model=job["model"], top_k=job["top_n"])
assert answer.total_tokens == len(job["texts"]), answer.total_tokens
assert all(each.document == job["texts"][each.index] for each in answer.results), answer.results
rankings = {"top_k": [(each.index, each.relevance_score) for each in answer.results]}
every = client.rerank(job["query"], job["texts"], model=job["model"]).results
assert len(every) == len(job["texts"]), every
rankings["all"] = [(each.index, each.relevance_score) for each in every[: job["top_n"]]]
errors = {}
for case, model, documents in (("unknown model", "unknown", job["texts"]), ("no documents", job["model"], [])):
    try:
        client.rerank(job["query"], documents, model=model)
    except voyageai.error.VoyageError as error:
        errors[case] = str(error)
json.dump({"rankings": rankings, "errors": errors}, sys.stdout)
