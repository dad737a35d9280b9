"""Embeds through LlamaIndex what stdin lists: {"url", "model", "texts"}; prints the vectors as JSON."""

from __future__ import annotations

import json
import sys

from llama_index.embeddings.openai import OpenAIEmbedding

asked = json.load(sys.stdin)
embedding = OpenAIEmbedding(model_name=asked["model"], api_base=asked["url"], api_key="any", embed_batch_size=100)
json.dump(embedding.get_text_embedding_batch(asked["texts"]), sys.stdout)
