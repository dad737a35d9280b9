"""Ranks texts with LangChain's CohereRerank: see cohere_rerank.py."""

from __future__ import annotations

import json
import sys

import cohere
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

job = json.load(sys.stdin)
documents = [Document(text, metadata={"index": index}) for index, text in enumerate(job["texts"])]
reranker = CohereRerank(model=job["model"], base_url=job["url"], cohere_api_key="any", top_n=job["top_n"])
ranking = [
    (each.metadata["index"], each.metadata["relevance_score"])
    for each in reranker.compress_documents(documents, job["query"])
]
errors = {}
try:
    reranker.rerank(documents, job["query"], model="unknown")
except cohere.errors.NotFoundError as error:
    errors["unknown model"] = str(error)
json.dump({"rankings": {"CohereRerank": ranking}, "errors": errors}, sys.stdout)
