"""Heartbeats as Redis holds them, and whether the workers that sent them serve one model."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Iterable

from pydantic import TypeAdapter, ValidationError

from shared.messages import Heartbeat
from shared.model_names import canonical_model, numbered_labels

FLOAT_BYTES = 4
_HEARTBEAT = TypeAdapter(Heartbeat)

MIXED_MODELS = (
    "workers of this queue seem to have different models: if they are different, an answer depends on the worker that "
    "takes the request, so start the workers of one of them with --queue NAME"
)


def parse_heartbeat(data: bytes) -> Heartbeat | None:
    """Parses a heartbeat, maybe of another version: missing fields make it unreadable, additional fields do not."""
    try:
        beat = _HEARTBEAT.validate_json(data)
    except ValidationError:
        return None
    return beat if math.isfinite(beat.tokens_per_s) and math.isfinite(beat.bulk_tokens_per_s) else None


def mixed_models(workers: Iterable[Heartbeat]) -> list[str]:
    """Returns the models of workers, sorted, each with the length of its vectors; empty if there are not several.

    Models with one revision are one model, whatever its folder is called; two revisions of one name are an update of a
    model. A worker that still loads its model has no revision, and takes no requests. One model may seem to be two:
    its copies in folders of different names, of workers with different devices, formats of numbers or libraries, which
    are part of a revision.
    """
    loaded = [each for each in workers if each.revision]
    models = {_describe(each) for each in loaded}
    return sorted(models) if len(models) > 1 and len({each.revision for each in loaded}) > 1 else []


def label_names(worker: Heartbeat) -> tuple[str, ...]:
    """Returns the names of the labels of a reranker or classifier; numbered ones if it has too many to report."""
    return worker.labels or tuple(numbered_labels(worker.dim))


def int8_ranges_of(worker: Heartbeat) -> bytes:
    """Returns the ranges of int8 vectors, as little-endian float32; none if they do not fit the model's vectors."""
    try:
        ranges = b64decode(worker.int8_ranges)
    except ValueError:
        return b""
    return ranges if len(ranges) == 2 * FLOAT_BYTES * worker.dim else b""


def _describe(beat: Heartbeat) -> str:
    name = canonical_model(beat.model)
    return f"{name} ({beat.dim} dimensions)" if beat.dim else name
