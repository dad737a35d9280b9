"""Embeds through LangChain what stdin lists: {"url", "model", "texts"}; prints the vectors as JSON."""

from __future__ import annotations

import json
import sys

from langchain_openai import OpenAIEmbeddings

asked = json.load(sys.stdin)
embeddings = OpenAIEmbeddings(
    model=asked["model"], base_url=asked["url"], api_key="any", check_embedding_ctx_length=False, chunk_size=100
)
json.dump(embeddings.embed_documents(asked["texts"]), sys.stdout)
