"""Entries as inputs that can wait for a batch: tokenized, each as its options ask for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from gpuworker.backends.base import Backend, Encoded, InputRefused
from gpuworker.batching import Waiting
from gpuworker.engine.work import Item, Work
from shared.messages import PLAIN


def items_of(backend: Backend, works: Sequence[Work]) -> list[Item]:
    """Returns the inputs of these entries, tokenized: those without options in one call.

    Raises:
        InputRefused: an entry asks for what this model does not do.
        Exception: whatever else a tokenizer raises.
    """
    plain = [work for work in works if work.options is PLAIN]
    encoded = iter(backend.tokenize([each for work in plain for each in work.inputs]))
    now = time.monotonic()
    items: list[Item] = []
    for work in works:
        own = list(islice(encoded, len(work.inputs))) if work.options is PLAIN else _with_options(backend, work)
        work.tokens = sum([each.tokens for each in own])
        for at, each in enumerate(own):
            waiting = Waiting(each.tokens, work.since, work.deadline, work.attempts, work.key, work.bulk)
            items.append(Item(work, at, each, waiting, now))
    return items


def _with_options(backend: Backend, work: Work) -> Sequence[Encoded]:
    dimensions = work.options.dimensions
    if dimensions is not None and dimensions > backend.dim:
        raise InputRefused(f"dimensions: the vectors of this model have {backend.dim}, not {dimensions}.")
    return backend.tokenize(work.inputs, work.options)
