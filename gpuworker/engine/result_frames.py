"""What the worker is told of a batch, as frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from gpuworker.ipc import frames
from gpuworker.engine.work import Failed, Ran, Work
from shared.errors import InputFailed
from shared.messages import EMBED_ALL, PREDICT

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

MOST_VALUES_BYTES = 32 * 2**20
"""Of the outputs of an entry: a reply has to pass through Redis, and one that is too long would never be read."""

TOO_LONG = f"The outputs for some of these inputs take {{}} MiB, over the limit of {MOST_VALUES_BYTES >> 20}."

MOST_REPORT_BYTES = 64 * 2**20
"""What a batch gives beyond it goes in further frames: one is held in memory by both processes."""

_BATCHES = count()


def reports_of(ran: Ran) -> Iterator[bytes]:
    """Yields the frame that says what a batch gave; or several, each but the last with `more` to follow."""
    failed = list(ran.failed)
    done: list[dict[str, Any]] = []
    pieces: list[bytes] = []
    size = 0
    batch = next(_BATCHES)  # which others may come between the frames of
    for work in ran.done:
        told, piece = _result(work)
        if work.op == PREDICT and len(piece) > MOST_VALUES_BYTES:
            failed.append(Failed(work.key, InputFailed.code, TOO_LONG.format(len(piece) >> 20)))
            continue
        if done and size + len(piece) > MOST_REPORT_BYTES:
            yield frames.encode(_header(ran, batch, done, [], more=True), b"".join(pieces))
            done, pieces, size = [], [], 0
        done.append(told)
        pieces.append(piece)
        size += len(piece)
    yield frames.encode(_header(ran, batch, done, failed, more=False), b"".join(pieces))


def _header(ran: Ran, batch: int, done: list[dict[str, Any]], failed: list[Failed], *, more: bool) -> frames.Header:
    return {
        "kind": "ran",
        "batch": batch,
        "more": more,
        "size": ran.size,
        "inputs": ran.inputs,
        "tokens": ran.tokens,
        "padded": ran.padded,
        "seconds": ran.seconds,
        "gap": ran.gap,
        "busy_s": ran.busy_s,
        "ended": ran.ended,
        "behind": ran.behind,
        "full": ran.full,
        "full_s": ran.full_s,
        "max_batch_tokens": ran.max_tokens,
        "done": done,
        "paused": [] if more else ran.paused,
        "failed": [asdict(failure) for failure in failed],
    }


def _result(work: Work) -> tuple[dict[str, object], bytes]:
    """Returns what is said of an entry that is done, and what it gave."""
    told: dict[str, object] = {
        "key": work.key,
        "tokens": work.tokens,
        "read_s": work.read_s,
        "read_at": work.read_at,
        "began": work.began,
    }
    if work.values is not None:
        given = frames.pack(work.values)
    elif work.op == PREDICT:
        given = frames.pack(cast("list[bytes]", work.rows))
    else:
        rows = cast("list[Vector]", work.rows)
        told["dim"] = rows[0].shape[-1]
        if work.op == EMBED_ALL:
            told["counts"] = [len(row) for row in rows]
        given = rows[0].tobytes() if len(rows) == 1 else b"".join([row.tobytes() for row in rows])
    told["bytes"] = len(given)
    return told, given
