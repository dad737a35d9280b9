"""What a tokenizer does: makes of entries inputs that can wait for a batch, or what was asked of it alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import orjson

from gpuworker.backends.base import Backend, InputRefused
from gpuworker.policy.batching import Waiting
from gpuworker.engine.failures import failure_of, late_failure_of
from gpuworker.engine.work import Item, Ran, Work
from shared.messages import DECODE, EMBED, PREDICT

BYTES_PER_ID = 4

MOST_TEXTS = 256
"""Most texts tokenized in one call, so that the first of many need not wait for the last."""

ELSEWHERE = {
    PREDICT: "This model gives vectors of texts: ask it with POST /embed.",
    EMBED: "This model is a function and gives no vectors: ask it with POST /predict.",
}
"""What is said of an operation that a model does not have."""


def portions(works: Iterable[Work]) -> Iterator[list[Work]]:
    """Yields entries in their order, as many at once as are tokenized in one call.

    A suspect is alone, and so is what a user's own function reads: it may take long, and take the process with it.
    """
    some: list[Work] = []
    texts = 0
    for work in works:
        apart = work.attempts or work.op == PREDICT or (some and (some[-1].attempts or some[-1].op == PREDICT))
        if some and (apart or texts + len(work.inputs) > MOST_TEXTS):
            yield some
            some, texts = [], 0
        some.append(work)
        texts += len(work.inputs)
    if some:
        yield some


def read_alone(backend: Backend, work: Work, begun: Callable[[list[str]], None]) -> Ran:
    """Does what a tokenizer alone can do for an entry; returns its answer. It has begun, unless its time is over."""
    if work.began is not None and work.began >= work.deadline:
        return Ran(failed=[late_failure_of(work)])
    begun([work.key])
    try:
        work.values = _values_of(backend, work)
    except Exception as error:  # noqa: BLE001 - whatever the tokenizer raises fails this entry alone
        return Ran(failed=[failure_of(work, error)])
    return Ran(done=[work])


def _values_of(backend: Backend, work: Work) -> list[bytes]:
    """Returns what READING gives for each input of an entry, as JSON.

    Raises:
        InputRefused: it asks for what this model does not do.
        Exception: whatever else a tokenizer raises.
    """
    _check(backend, work)
    began = time.monotonic()
    if work.op == DECODE:
        values: list[Any] = list(backend.decode(work.inputs, work.options))
        work.tokens = [len(each) // BYTES_PER_ID for each in work.inputs]
    else:
        values = list(backend.show_tokens(work.inputs, work.options))
        work.tokens = [len(each) for each in values]
    told = [orjson.dumps(each) for each in values]
    work.read_at = time.monotonic()
    work.read_s = work.read_at - began
    return told


def tokenized(backend: Backend, works: Sequence[Work]) -> tuple[list[Item], list[tuple[Work, Exception]]]:
    """Returns the inputs of these entries, and the entries that cannot be read, with why."""
    try:
        return items_of(backend, works), []
    except Exception:  # noqa: BLE001 - one of them is to blame: find out which
        items: list[Item] = []
        broken: list[tuple[Work, Exception]] = []
        for work in works:
            try:
                items += items_of(backend, [work])
            except Exception as error:  # noqa: BLE001 - whatever the tokenizer raises fails this entry alone
                broken.append((work, error))
        return items, broken


def items_of(backend: Backend, works: Sequence[Work]) -> list[Item]:
    """Returns the inputs of these entries, tokenized: those that are read alike in one call.

    Raises:
        InputRefused: an entry asks for what this model does not do.
        Exception: whatever else a tokenizer raises.
    """
    began = time.monotonic()
    alike: dict[object, list[Work]] = {}
    for work in works:
        _check(backend, work)
        dimensions = work.options.dimensions
        if dimensions is not None and dimensions > backend.dim:
            raise InputRefused(f"dimensions: the vectors of this model have {backend.dim}, not {dimensions}.")
        alike.setdefault(work.read_as, []).append(work)
    encoded = [
        (some, backend.tokenize([each for work in some for each in work.inputs], some[0].options))
        for some in alike.values()
    ]
    now = time.monotonic()
    items: list[Item] = []
    for some, of_all in encoded:
        following = iter(of_all)
        for work in some:
            own = list(islice(following, len(work.inputs)))
            work.tokens, work.read_s, work.read_at = [each.tokens for each in own], now - began, now
            for at, each in enumerate(own):
                waiting = Waiting(each.tokens, work.since, work.deadline, work.attempts, work.key, work.bulk)
                items.append(Item(work, at, each, waiting, now))
    return items


def _check(backend: Backend, work: Work) -> None:
    """Raises InputRefused: this model does not do such things."""
    if work.op not in backend.ops:
        raise InputRefused(ELSEWHERE[PREDICT if work.op == PREDICT else EMBED])
