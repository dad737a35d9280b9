"""Reads {"url", "model", "texts"} from stdin, embeds the texts with Voyage's client, and prints the vectors as JSON."""

from __future__ import annotations

import json
import sys

import voyageai

job = json.load(sys.stdin)
client = voyageai.Client(api_key="any", base_url=job["url"])
batches = [job["texts"][start : start + 100] for start in range(0, len(job["texts"]), 100)]
vectors = [row for batch in batches for row in client.embed(batch, job["model"], input_type="document").embeddings]
whole = client.embed(job["texts"][:2], job["model"], input_type="query", output_dtype="int8").embeddings
assert all(isinstance(number, int) and -127 <= number <= 127 for row in whole for number in row), whole
json.dump(vectors, sys.stdout)
