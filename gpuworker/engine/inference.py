"""Collates batches and runs the model on them, whatever operations and options their rows have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from gpuworker.backends.base import MODEL_ERRORS, ModelOutputError
from gpuworker.engine.postprocess import postprocess
from gpuworker.engine.work import Batch
from shared.messages import DEFAULT_OPTIONS, EMBED, EMBED_ALL

if TYPE_CHECKING:
    from gpuworker.backends.base import Backend, Output, Vector
    from gpuworker.engine.work import BatchRow, InputItem


NOT_COLLATED = object()
"""In place of a collated batch: it is collated when it runs."""


def collate(backend: Backend, rows: tuple[BatchRow, ...]) -> Batch:
    """Returns rows as a batch, collated unless that runs a user's code.

    Such code may hang or end the process: `run_batch` calls it, when the entries are known to have started.
    """
    return Batch(rows, NOT_COLLATED) if backend.collate_runs_user_code else collate_now(backend, rows)


def collate_now(backend: Backend, rows: tuple[BatchRow, ...]) -> Batch:
    """Returns rows as a batch. If they cannot be collated, the batch holds the error, which running it raises."""
    try:
        return Batch(rows, backend.collate([row.encoded for row in rows]))
    except MODEL_ERRORS as error:  # it fails the inputs that caused it, as an error in the run does
        return Batch(rows, None, error)


def split_runnable(rows: Sequence[BatchRow]) -> list[tuple[BatchRow, ...]]:
    """Returns the rows in groups that can run at once: rows for EMBED_ALL run apart from all others."""
    pooled = tuple(row for row in rows if row.items[0].task.op != EMBED_ALL)
    if len(pooled) in (0, len(rows)):
        return [tuple(rows)]
    return [pooled, tuple(row for row in rows if row.items[0].task.op == EMBED_ALL)]


def run_batch(backend: Backend, batch: Batch, *, exclusive: bool) -> list[tuple[InputItem, Output]]:
    """Returns the output for each input of a batch: a vector, an array of the vectors of its tokens, or JSON.

    The rows can run at once: they are one group of `split_runnable`.

    Raises:
        ModelOutputError: the model returned another number of outputs than the batch has rows.
        Exception: any other error of the model, or of collating the batch.
    """
    if batch.collated is NOT_COLLATED:
        batch = collate_now(backend, batch.rows)
    if batch.error is not None:
        raise batch.error
    # A list: a generator takes twice the time.
    plain = all([item.task.options is DEFAULT_OPTIONS for item in batch.items])  # noqa: C419
    raw = not plain and any(item.task.options.normalize is False for item in batch.items)
    op = batch.rows[0].items[0].task.op
    outputs = backend.run(batch.collated, op, exclusive=exclusive, raw=raw)
    if len(outputs) != len(batch.rows):
        raise ModelOutputError(f"it returned {len(outputs)} outputs for {len(batch.rows)} inputs")
    if plain or op != EMBED:
        return [(item, output) for row, output in zip(batch.rows, outputs, strict=True) for item in row.items]
    vectors = cast("Sequence[Vector]", outputs)
    finish = partial(postprocess, normalizes=backend.normalizes, raw=raw)
    return [
        (item, vector if item.task.options is DEFAULT_OPTIONS and not raw else finish(vector, item.task.options))
        for row, vector in zip(batch.rows, vectors, strict=True)
        for item in row.items
    ]
