"""Ranks {"texts"} by {"query"} with both of Cohere's clients; reads a job from stdin, and prints rankings and errors.

The job is {"url", "model", "query", "texts", "top_n"}. Rankings are pairs of index and score; they and the messages of
errors are printed by the name of the client or the case. The other scripts that rerank read and print the same.
"""

from __future__ import annotations

import json
import sys

import cohere

job = json.load(sys.stdin)
rankings, errors = {}, {}
for name, kind in {"ClientV2": cohere.ClientV2, "Client": cohere.Client}.items():
    client = kind(api_key="any", base_url=job["url"])
    answer = client.rerank(model=job["model"], query=job["query"], documents=job["texts"], top_n=job["top_n"])
    rankings[name] = [(each.index, each.relevance_score) for each in answer.results]
    assert answer.meta.billed_units.search_units == 1, answer.meta
    assert answer.meta.tokens.input_tokens == len(job["texts"]), answer.meta
    for case, model, documents in (("unknown model", "unknown", job["texts"]), ("no documents", job["model"], [])):
        try:
            client.rerank(model=model, query=job["query"], documents=documents)
        except cohere.core.ApiError as error:
            errors[f"{name}, {case}"] = str(error)
with_documents = client.rerank(
    model=job["model"],
    query=job["query"],
    documents=[{"text": text} for text in job["texts"]],
    top_n=job["top_n"],
    return_documents=True,
).results
assert all(each.document.text == job["texts"][each.index] for each in with_documents), with_documents
rankings["Client, documents"] = [(each.index, each.relevance_score) for each in with_documents]
json.dump({"rankings": rankings, "errors": errors}, sys.stdout)
