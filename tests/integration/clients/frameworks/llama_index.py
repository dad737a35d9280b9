"""Reads {"url", "model", "texts"} from stdin, embeds the texts with LlamaIndex, and prints the vectors as JSON."""

from __future__ import annotations

import json
import sys

from llama_index.embeddings.openai import OpenAIEmbedding

job = json.load(sys.stdin)
embedding = OpenAIEmbedding(model_name=job["model"], api_base=job["url"], api_key="any", embed_batch_size=100)
json.dump(embedding.get_text_embedding_batch(job["texts"]), sys.stdout)
