"""Vectors as JSON and headers. Numbers are float32 in the shortest decimal form that reads back the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from shared.messages import Failure, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.dispatch.dispatcher import Answered
    from shared.messages import Reply

Rows = Sequence["NDArray[np.float32] | None"]
"""A vector for each input, or None for one that failed."""


def dump(whole: dict[str, Any] | list[Any] | NDArray[np.float32]) -> bytes:
    """Returns JSON; vectors may be arrays."""
    return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY)


def rows_of(answered: Answered) -> Rows | NDArray[np.float32]:
    """Returns what there is for each input of a request: an array of shape (inputs, dim) where none has failed."""
    parts = answered.parts
    found = [each for each in parts if isinstance(each, Vectors)]
    if len(found) == len(parts):
        return np.frombuffer(b"".join([each.data for each in found]), dtype="<f4").reshape(-1, found[0].dim)
    return [np.frombuffer(each.data, dtype="<f4") if isinstance(each, Vectors) else None for each in parts]


def errors_of(parts: Iterable[Reply]) -> list[dict[str, object]]:
    """Returns what is said of the inputs that failed: which, the code and the message."""
    failures = (each for each in parts if isinstance(each, Failure))
    return [{"index": each.position, "code": each.code, "message": each.message} for each in failures]


def timing_headers(answered: Answered) -> dict[str, str]:
    """Returns the times of a request, in ms, and the size of the batch that it ran in."""
    return {
        "x-queue-time": f"{answered.queue_ms:.1f}",
        "x-inference-time": f"{answered.inference_ms:.1f}",
        "x-batch-size": str(answered.batch_size),
    }
