"""What the model gives for a batch, whatever its rows ask for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from gpuworker.engine.postprocess import finish
from shared.messages import EMBED, EMBED_ALL, PLAIN

if TYPE_CHECKING:
    from gpuworker.backends.base import Backend, Output, Vector
    from gpuworker.engine.work import Batch, Item, Row


def alike(rows: Sequence[Row]) -> list[tuple[Row, ...]]:
    """Returns the rows that can run at once: those that ask for the vectors of tokens run by themselves."""
    pooled = tuple(row for row in rows if row.items[0].work.op != EMBED_ALL)
    if len(pooled) in (0, len(rows)):
        return [tuple(rows)]
    return [pooled, tuple(row for row in rows if row.items[0].work.op == EMBED_ALL)]


def results_of(backend: Backend, batch: Batch, *, alone: bool) -> list[tuple[Item, Output]]:
    """Returns what each input of a batch of such rows gets: its vector, an array of those of its tokens, or JSON.

    Raises:
        ValueError: the model gave another number of them.
        Exception: whatever else collating the batch, or the model, has raised.
    """
    if batch.error is not None:
        raise batch.error
    plain = all([item.work.options is PLAIN for item in batch.items])  # noqa: C419 - a generator takes twice the time
    raw = not plain and any(item.work.options.normalize is False for item in batch.items)
    op = batch.rows[0].items[0].work.op
    outputs = backend.run(batch.collated, op, alone=alone, raw=raw)
    if len(outputs) != len(batch.rows):
        raise ValueError(f"the model gave {len(outputs)} outputs for {len(batch.rows)} inputs")
    if plain or op != EMBED:
        return [(item, output) for row, output in zip(batch.rows, outputs, strict=True) for item in row.items]
    vectors = cast("Sequence[Vector]", outputs)
    finished = partial(finish, normalizes=backend.normalizes, raw=raw)
    return [
        (item, vector if item.work.options is PLAIN and not raw else finished(vector, item.work.options))
        for row, vector in zip(batch.rows, vectors, strict=True)
        for item in row.items
    ]
