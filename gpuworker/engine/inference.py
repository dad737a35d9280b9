"""Collates batches and runs the model on them, whatever operations and options their rows have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from gpuworker.backends.base import MODEL_ERRORS, ModelOutputError
from gpuworker.engine.postprocess import postprocess
from gpuworker.engine.work import Batch
from shared.messages import (
    DEFAULT_OPTIONS,
    DENSE,
    EMBED,
    EMBED_ALL,
    EMBED_PARTS,
    MULTI_VECTOR,
    PART_OPS,
    SCORE,
    SPARSE,
)
from shared.parts import Parts, encode_parts

if TYPE_CHECKING:
    from gpuworker.backends.base import Backend, Output, PartsBackend, TextParts, Vector
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


def split_runnable(backend: Backend, rows: Sequence[BatchRow]) -> list[tuple[BatchRow, ...]]:
    """Returns the rows in groups that can run at once.

    Rows for EMBED_ALL run apart from all others, and so do those for SCORE if the model also returns vectors of tokens.
    Operations whose outputs are parts that the model returns together share a pass.
    """
    if len({row.items[0].task.op for row in rows}) == 1:
        return [tuple(rows)]
    groups: dict[str, list[BatchRow]] = {}
    for row in rows:
        op = row.items[0].task.op
        is_apart = op == EMBED_ALL or (op == SCORE and backend.parts)
        group = EMBED_PARTS if _is_of_parts(backend, op) else op if is_apart else EMBED
        groups.setdefault(group, []).append(row)
    return [tuple(group) for group in groups.values()]


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
    if backend.parts and _is_of_parts(backend, op) and any(item.task.op != EMBED for item in batch.items):
        return _run_parts(cast("PartsBackend", backend), batch, exclusive=exclusive, raw=raw)
    outputs = backend.run(batch.collated, op, exclusive=exclusive, raw=raw)
    _check_number(len(outputs), batch)
    if plain or op != EMBED:
        return [(item, output) for row, output in zip(batch.rows, outputs, strict=True) for item in row.items]
    vectors = cast("Sequence[Vector]", outputs)
    finish = partial(postprocess, normalizes=backend.normalizes, raw=raw)
    return [
        (item, vector if item.task.options is DEFAULT_OPTIONS and not raw else finish(vector, item.task.options))
        for row, vector in zip(batch.rows, vectors, strict=True)
        for item in row.items
    ]


def _check_number(number: int, batch: Batch) -> None:
    if number != len(batch.rows):
        raise ModelOutputError(f"it returned {number} outputs for {len(batch.rows)} inputs")


def _is_of_parts(backend: Backend, op: str) -> bool:
    """Whether the output of an operation is one of the parts that a model returns together, or several of them."""
    return bool(backend.parts) and (op == EMBED_PARTS or PART_OPS.get(op) in backend.parts)


def _run_parts(backend: PartsBackend, batch: Batch, *, exclusive: bool, raw: bool) -> list[tuple[InputItem, Output]]:
    """Returns the output for each input of a batch, from one pass that makes what any of its rows needs."""
    wanted = [frozenset(part for item in row.items for part in _parts_of(item)) for row in batch.rows]
    outputs = backend.run_parts(batch.collated, wanted, exclusive=exclusive, raw=raw)
    _check_number(len(outputs), batch)
    finish = partial(postprocess, normalizes=backend.normalizes, raw=raw)
    return [
        (
            item,
            _output_of(
                item, parts if parts.dense is None else parts._replace(dense=finish(parts.dense, item.task.options))
            ),
        )
        for row, parts in zip(batch.rows, outputs, strict=True)
        for item in row.items
    ]


def _parts_of(item: InputItem) -> Sequence[str]:
    task = item.task
    return task.options.parts if task.op == EMBED_PARTS else (PART_OPS[task.op],)


def _output_of(item: InputItem, parts: TextParts) -> Output:
    """Returns what the operation of an input makes of the parts of its row, which may have more than it needs."""
    if item.task.op != EMBED_PARTS:
        output: Output | None = getattr(parts, PART_OPS[item.task.op])
        assert output is not None  # noqa: S101 - it was wanted
        return output
    return _encode(parts, item.task.options.parts)


def _encode(parts: TextParts, named: Sequence[str]) -> bytes:
    """Returns the named parts of a text as bytes."""
    dense = parts.dense if DENSE in named else None
    vectors = parts.multi_vector if MULTI_VECTOR in named else None
    return encode_parts(
        Parts(
            None if dense is None else dense.tobytes(),
            parts.sparse if SPARSE in named else None,
            None if vectors is None else vectors.tobytes(),
            1 if vectors is None else vectors.shape[-1],
        )
    )
