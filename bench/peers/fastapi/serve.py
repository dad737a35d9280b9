"""Plain FastAPI: one `encode` per request, in the thread pool in which FastAPI runs `def` routes. No batching.

Run by uvicorn; EMBED_MODEL is the model.
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
    """Answers with a response model, which FastAPI's documentation calls the fastest way."""
    return Embedding(embedding=embed([body.text])[0].tolist())


@app.post("/orjson/embed")
def lean(body: Text) -> Response:
    """Answers with bytes that orjson serialized."""
    vector = np.ascontiguousarray(embed([body.text])[0])
    content = orjson.dumps({"embedding": vector}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type="application/json")
