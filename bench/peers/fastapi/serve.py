"""Plain FastAPI: one `encode` for each request, in the thread pool that FastAPI gives a `def` route. No batching.

Run by uvicorn; the model stands in EMBED_MODEL.
"""

from __future__ import annotations

import os

import numpy as np
import orjson
from fastapi import FastAPI, Response
from pydantic import BaseModel

from bench.peers.models import load


class Text(BaseModel):
    """The body of a request."""

    text: str


class Embedding(BaseModel):
    """The body of an answer."""

    embedding: list[float]


app = FastAPI()
embed = load(os.environ["EMBED_MODEL"])


@app.post("/embed")
def typed(body: Text) -> Embedding:
    """Answers through a model, which FastAPI's documentation calls the fastest."""
    return Embedding(embedding=embed([body.text])[0].tolist())


@app.post("/orjson/embed")
def lean(body: Text) -> Response:
    """Answers with bytes of its own making."""
    vector = np.ascontiguousarray(embed([body.text])[0])
    content = orjson.dumps({"embedding": vector}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type="application/json")
