"""Provokes errors with LiteLLM's rerank, as of four providers: see cohere_errors.py."""

from __future__ import annotations

import json
import sys

import litellm
import openai

litellm.suppress_debug_info = True  # it prints advice to stdout at each error
job = json.load(sys.stdin)
errors: dict[str, str] = {}
CASES: tuple[tuple[str, str, str, list[str]], ...] = (
    ("no documents", job["key"], job["model"], []),
    ("wrong model", job["key"], job["labels"], ["a"]),
    ("too long", job["key"], job["long"], ["a"]),
    ("no such key", "any", job["model"], ["a"]),
    ("overloaded", job["poor_key"], job["model"], ["a"]),
)
for provider in ("hosted_vllm", "huggingface", "jina_ai", "cohere"):
    for case, key, model, documents in CASES:
        header = {"headers": {"X-Model": model}} if provider == "huggingface" else {}
        try:
            litellm.rerank(
                f"{provider}/{model}", query="q", documents=documents, api_base=job["url"], api_key=key, **header
            )
        except openai.APIError as error:  # from which all errors of LiteLLM derive
            errors[f"{provider}, {case}"] = f"{type(error).__name__} {error}"
json.dump({"errors": errors}, sys.stdout)
