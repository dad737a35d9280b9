"""What the worker is told of a batch, as frames."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, cast

from gpuworker.engine.work import BatchResult, EntryTask
from gpuworker.ipc import frames
from gpuworker.ipc.messages import BatchCompleted, EntryFailure, EntryResult
from shared.errors import InputFailedError
from shared.messages import EMBED_ALL, PREDICT

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

MAX_VALUES_BYTES = 32 * 2**20
"""Of the outputs of an entry: a reply has to pass through Redis, and one that is too long would never be read."""

TOO_LONG = f"The outputs for some of these inputs take {{}} MiB, over the limit of {MAX_VALUES_BYTES >> 20}."

MAX_REPORT_BYTES = 64 * 2**20
"""What a batch gives beyond it goes in further frames: one is held in memory by both processes."""

_BATCHES = count()


def reports_of(ran: BatchResult) -> Iterator[bytes]:
    """Yields the frame that says what a batch gave; or several, each but the last with `more` to follow."""
    failed = [EntryFailure(each.key, each.code, each.message) for each in ran.failed]
    done: list[EntryResult] = []
    pieces: list[bytes] = []
    size = 0
    batch = next(_BATCHES)  # which others may come between the frames of
    for work in ran.done:
        result, piece = _result(work)
        if work.op == PREDICT and len(piece) > MAX_VALUES_BYTES:
            failed.append(EntryFailure(work.key, InputFailedError.code, TOO_LONG.format(len(piece) >> 20)))
            continue
        if done and size + len(piece) > MAX_REPORT_BYTES:
            yield frames.encode(_message(ran, batch, done, [], more=True), b"".join(pieces))
            done, pieces, size = [], [], 0
        done.append(result)
        pieces.append(piece)
        size += len(piece)
    yield frames.encode(_message(ran, batch, done, failed, more=False), b"".join(pieces))


def _message(
    ran: BatchResult, batch: int, done: list[EntryResult], failed: list[EntryFailure], *, more: bool
) -> BatchCompleted:
    return BatchCompleted(
        batch,
        more,
        ran.size,
        ran.inputs,
        ran.tokens,
        ran.padded,
        ran.seconds,
        ran.gap,
        ran.busy_s,
        ran.ended,
        ran.behind,
        ran.full,
        ran.full_s,
        ran.max_tokens,
        done,
        [] if more else ran.paused,
        failed,
    )


def _result(work: EntryTask) -> tuple[EntryResult, bytes]:
    """Returns what is said of an entry that is done, and what it gave."""
    dim, counts = 0, list[int]()
    if work.values is not None:
        given = frames.pack(work.values)
    elif work.op == PREDICT:
        given = frames.pack(cast("list[bytes]", work.rows))
    else:
        rows = cast("list[Vector]", work.rows)
        dim = rows[0].shape[-1]
        if work.op == EMBED_ALL:
            counts = [len(row) for row in rows]
        given = rows[0].tobytes() if len(rows) == 1 else b"".join([row.tobytes() for row in rows])
    began = cast("float", work.began)  # what is done has begun
    return EntryResult(work.key, len(given), dim, counts, work.tokens, work.read_s, work.read_at, began), given
