"""Encodes the result of a batch as frames for the worker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, cast

from gpuworker.engine.work import BatchResult, EntryTask
from gpuworker.ipc import framing
from gpuworker.ipc.messages import BatchCompleted, EntryFailure, EntryResult
from shared.errors import InputFailedError
from shared.messages import EMBED_ALL, JSON_OPS, MAX_OUTPUTS_BYTES

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

OUTPUTS_TOO_LONG = (
    f"The outputs for some of these inputs take {{}} MiB, over the limit of {MAX_OUTPUTS_BYTES >> 20} MiB: send fewer "
    "or shorter ones at once."
)

MAX_PAYLOAD_BYTES = 64 * 2**20
"""A longer result is split into several frames: both processes hold one frame in memory."""

_BATCH_NUMBERS = count()


def encode_result(result: BatchResult) -> Iterator[bytes]:
    """Yields the frame with a batch's result; or several, each except the last with `more` to follow."""
    failures = list(result.failures)
    results: list[EntryResult] = []
    outputs: list[bytes] = []
    size = 0
    batch = next(_BATCH_NUMBERS)  # frames of other batches may come between those of this one
    for task in result.completed:
        entry_result, output = _encode_entry(task)
        if task.op in JSON_OPS and len(output) > MAX_OUTPUTS_BYTES:
            message = OUTPUTS_TOO_LONG.format(ceil(len(output) / 2**20))
            failures.append(EntryFailure(task.key, InputFailedError.code, message, device_s=task.device_s))
            continue
        if results and size + len(output) > MAX_PAYLOAD_BYTES:
            yield framing.encode(_message(result, batch, results, [], more=True), b"".join(outputs))
            results, outputs, size = [], [], 0
        results.append(entry_result)
        outputs.append(output)
        size += len(output)
    yield framing.encode(_message(result, batch, results, failures, more=False), b"".join(outputs))


def _message(
    result: BatchResult, batch: int, results: list[EntryResult], failures: list[EntryFailure], *, more: bool
) -> BatchCompleted:
    return BatchCompleted(
        batch,
        more,
        result.size,
        result.inputs,
        result.tokens,
        result.padded_tokens,
        result.cost,
        result.run_s,
        result.gap_s,
        result.busy_s,
        result.ended_at,
        result.has_backlog,
        result.is_full,
        result.full_batch_s,
        result.max_batch_tokens,
        tuple(results),
        () if more else tuple(result.unfinished_keys),
        tuple(failures),
        result.num_outputs,
        () if more else tuple(result.errors),
        result.is_retry,
    )


def _encode_entry(task: EntryTask) -> tuple[EntryResult, bytes]:
    """Returns the result of a completed entry, and its part of the payload."""
    dim = 0
    counts: tuple[int, ...] = ()
    if task.values is not None:
        payload = framing.pack_values(task.values)
    elif task.op in JSON_OPS:
        payload = framing.pack_values(cast("list[bytes]", task.outputs))
    else:
        vectors = cast("list[Vector]", task.outputs)
        dim = vectors[0].shape[-1]
        if task.op == EMBED_ALL:
            counts = tuple([len(each) for each in vectors])
        payload = vectors[0].tobytes() if len(vectors) == 1 else b"".join([each.tobytes() for each in vectors])
    started_at = task.started_at or 0.0  # it is set: a completed entry has started
    result = EntryResult(
        task.key,
        len(payload),
        dim,
        counts,
        tuple(task.tokens),
        task.tokenize_s,
        task.tokenized_at,
        started_at,
        tuple(task.truncated),
        task.batch_size,
        task.device_s,
    )
    return result, payload
