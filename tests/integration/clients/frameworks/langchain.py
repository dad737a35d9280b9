"""Reads {"url", "model", "texts"} from stdin, embeds the texts with LangChain, and prints the vectors as JSON."""

from __future__ import annotations

import json
import sys

from langchain_openai import OpenAIEmbeddings

job = json.load(sys.stdin)
embeddings = OpenAIEmbeddings(
    model=job["model"], base_url=job["url"], api_key="any", check_embedding_ctx_length=False, chunk_size=100
)
json.dump(embeddings.embed_documents(job["texts"]), sys.stdout)
