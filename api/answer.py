"""Vectors as JSON and headers. Numbers are float32 in the shortest decimal form that reads back the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson

if TYPE_CHECKING:
    from api.dispatcher import Embedded


def embed_body(embedded: Embedded, *, single: bool) -> bytes:
    """Returns the body of an answer to POST /embed."""
    dim = embedded.vectors[0].dim
    vectors = np.frombuffer(b"".join([each.data for each in embedded.vectors]), dtype="<f4").reshape(-1, dim)
    answer = {"embedding": vectors[0]} if single else {"embeddings": vectors}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def timing_headers(embedded: Embedded) -> dict[str, str]:
    """Returns the times of a request, in ms, and the size of the batch that it ran in."""
    return {
        "x-queue-time": f"{embedded.queue_ms:.1f}",
        "x-inference-time": f"{embedded.inference_ms:.1f}",
        "x-batch-size": str(embedded.batch_size),
    }
