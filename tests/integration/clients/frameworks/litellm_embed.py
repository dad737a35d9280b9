"""Reads {"url", "model", "texts"} from stdin, embeds the texts with LiteLLM, and prints the vectors as JSON."""

from __future__ import annotations

import json
import sys

import litellm

job = json.load(sys.stdin)
answers = [
    litellm.embedding(f"{provider}/{job['model']}", input=texts, api_base=job["url"], api_key="any")
    for provider, texts in (("openai", job["texts"][:500]), ("hosted_vllm", job["texts"][500:]))
]
json.dump([each["embedding"] for answer in answers for each in answer.data], sys.stdout)
