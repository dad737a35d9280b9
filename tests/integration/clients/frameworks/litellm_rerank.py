"""Ranks texts with LiteLLM's rerank, as of four providers: see cohere_rerank.py."""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm
import openai

litellm.suppress_debug_info = True  # it prints advice to stdout at each error
job = json.load(sys.stdin)


def rerank(provider: str, model: str, documents: list[str]) -> Any:  # noqa: ANN401 - its types are not installed here
    """Returns the answer for a provider's name of a model; TEI's API names models in a header only."""
    header = {"headers": {"X-Model": model}} if provider == "huggingface" else {}
    return litellm.rerank(
        f"{provider}/{model}",
        query=job["query"],
        documents=documents,
        top_n=job["top_n"],
        api_base=job["url"],
        api_key="any",
        **header,
    )


rankings, errors = {}, {}
for provider in ("hosted_vllm", "huggingface", "jina_ai", "cohere"):
    answer = rerank(provider, job["model"], job["texts"])
    assert all(each["document"]["text"] == job["texts"][each["index"]] for each in answer.results), answer
    rankings[provider] = [(each["index"], each["relevance_score"]) for each in answer.results]
    for case, model, documents in (("unknown model", "unknown", job["texts"]), ("no documents", job["model"], [])):
        try:
            rerank(provider, model, documents)
        except openai.APIError as error:  # from which all errors of LiteLLM derive
            errors[f"{provider}, {case}"] = str(error)
json.dump({"rankings": rankings, "errors": errors}, sys.stdout)
