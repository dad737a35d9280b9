"""Sends small requests that arrive together in one entry, which costs Redis and a worker little more than one request.

What such an entry does not answer, because it is refused or fails, is sent again for each request alone: no client gets
an error for which the request of another one is the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import structlog

from api import metrics
from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.inflight import InFlight
from api.settings_groups import EntryLimits
from api.tenants import Tenant
from shared.errors import RedbatchError
from shared.messages import EMBED, Input, Options, Reply, Vectors

log = structlog.get_logger()

MAX_VECTORS_BYTES = 64 * 2**10
"""Maximum bytes of the vectors of an entry with several requests."""

MAX_INPUTS, MAX_CHARS = 4, 512
"""Maximum inputs of a small request, and characters of each: a short text would wait for a long one in its entry."""

MAX_OPEN = 64
"""Maximum entries to which requests are being added."""

SEND_WITHIN_S = 0.005
"""Maximum time until an entry is sent, if Redis is slow: otherwise it goes with the next submit, which is sooner."""

ALONE_S = 1.0
"""After an entry of several requests was refused or failed, all requests go alone for this time."""


class Fleet(NamedTuple):
    """The ready workers, the bytes of a vector (0: unknown), and the requests in flight of this gateway."""

    num_workers: int
    vector_bytes: int
    num_requests: int


def max_inputs(limits: EntryLimits, fleet: Fleet) -> int:
    """Returns the maximum inputs of an entry with several requests; at most 1: no requests share an entry.

    It is small enough for each worker to have several entries of the requests in flight: a worker runs an entry alone.
    """
    if not fleet.num_workers or not fleet.vector_bytes:
        return 0
    by_load = fleet.num_requests // (limits.min_per_worker * fleet.num_workers)
    return min(by_load, limits.requests, limits.inputs, MAX_VECTORS_BYTES // fleet.vector_bytes)


def is_small(request: InferenceRequest) -> bool:
    """Whether a request may share an entry, if it has a small share of the entry's inputs."""
    inputs = request.inputs
    return (
        request.op == EMBED
        and 0 < len(inputs) <= MAX_INPUTS
        and not request.partial
        and not request.indices
        and max(map(len, inputs)) <= MAX_CHARS
    )


class CoalescedRequest(NamedTuple):
    """Requests as one: their inputs, the first deadline (event loop's clock, s), and how many they are."""

    request: InferenceRequest
    deadline: float
    num_coalesced: int


_Key = tuple[Options, Tenant, int, int]
"""What requests in one entry have in common: options, tenant, lane and timeout."""


class _Member(NamedTuple):
    """A request in an entry: its first input there, their number, and its result; None: it must go alone."""

    first: int
    num_inputs: int
    result: asyncio.Future[InferenceResult | None]


class _OpenEntry:
    """Requests that go in one entry. The first gives all but the inputs."""

    def __init__(self, request: InferenceRequest, deadline: float, timer: asyncio.TimerHandle) -> None:
        self.request, self.deadline, self.timer = request, deadline, timer
        self.inputs: list[Input] = []
        self.members: list[_Member] = []
        self.num_waiting = 0
        self.in_flight: InFlight | None = None


class Coalescer:
    """Sends requests in entries that they share, and gives each its part of the answer.

    Args:
        limits: of entries.
        fleet: returns the present fleet.
        start: sends requests as one. Raises RedbatchError: it cannot be sent.
        end: called when that is answered, or all its clients have left.
        wake: called when there is something to send: `flush` is due before the next submit.

    Attributes:
        num_surplus: requests that wait here, less those that `start` has got for them.
    """

    def __init__(
        self,
        limits: EntryLimits,
        fleet: Callable[[], Fleet],
        start: Callable[[CoalescedRequest], InFlight],
        end: Callable[[InFlight], None],
        wake: Callable[[], None],
    ) -> None:
        self._limits, self._fleet, self._start, self._end, self._wake = limits, fleet, start, end, wake
        self._open: dict[_Key, _OpenEntry] = {}
        self._alone_until = 0.0
        self.num_surplus = 0

    def takes(self, request: InferenceRequest, now: float) -> bool:
        """Whether a request is to share an entry, at a time of the event loop's clock."""
        return (
            is_small(request)
            and now >= self._alone_until
            and len(self._open) < MAX_OPEN
            and len(request.inputs) < max_inputs(self._limits, self._fleet())
        )

    async def answer(self, request: InferenceRequest, deadline: float) -> InferenceResult | None:
        """Returns the result of a request that `takes` has approved; None if it must go alone.

        Raises:
            RedbatchError: its deadline has passed.
        """
        entry = self._open_entry(request, deadline)
        result: asyncio.Future[InferenceResult | None] = asyncio.get_running_loop().create_future()
        entry.members.append(_Member(len(entry.inputs), len(request.inputs), result))
        entry.inputs += request.inputs
        entry.num_waiting += 1
        self.num_surplus += 1
        try:
            return await result
        finally:
            self.num_surplus -= 1
            entry.num_waiting -= 1
            if not entry.num_waiting and entry.in_flight is not None:
                entry.in_flight.answer.cancel()  # all clients have left, or the answer is there

    def flush(self) -> None:
        """Sends all requests that wait."""
        for key in list(self._open):
            self._send(key)

    def _open_entry(self, request: InferenceRequest, deadline: float) -> _OpenEntry:
        key = request.options, request.tenant, request.lane, request.timeout_ms
        entry = self._open.get(key)
        if entry is not None and len(entry.inputs) + len(request.inputs) > max_inputs(self._limits, self._fleet()):
            self._send(key)
            entry = None
        if entry is None:
            timer = asyncio.get_running_loop().call_later(SEND_WITHIN_S, self._send, key)
            entry = self._open[key] = _OpenEntry(request, deadline, timer)
            self._wake()
        return entry

    def _send(self, key: _Key) -> None:
        entry = self._open.pop(key)
        entry.timer.cancel()
        if not entry.num_waiting:
            return
        request = entry.request._replace(inputs=tuple(entry.inputs))
        try:
            in_flight = self._start(CoalescedRequest(request, entry.deadline, len(entry.members)))
        except RedbatchError:  # which of them is the reason shows when each goes alone
            _answer_all(entry, None)
            return
        self.num_surplus -= 1
        entry.in_flight = in_flight
        in_flight.answer.add_done_callback(partial(self._finish, entry, in_flight))
        if len(entry.members) > 1:
            metrics.COALESCED_REQUESTS.inc(len(entry.members))

    def _finish(self, entry: _OpenEntry, in_flight: InFlight, answer: asyncio.Future[list[Reply]]) -> None:
        self.num_surplus += 1
        error = None if answer.cancelled() else answer.exception()
        self._end(in_flight)
        if answer.cancelled():
            _answer_all(entry, None)
        elif error is None:
            _deliver(entry, answer.result())
        elif len(entry.members) == 1 or asyncio.get_running_loop().time() >= entry.deadline:
            _answer_all(entry, error)
        else:
            self._alone_until = asyncio.get_running_loop().time() + ALONE_S
            log.debug("an entry failed: each of its requests goes alone", requests=len(entry.members))
            _answer_all(entry, None)


def _answer_all(entry: _OpenEntry, error: BaseException | None) -> None:
    """Answers all requests of an entry with an error; None: they must go alone."""
    for member in entry.members:
        if member.result.done():
            continue
        if error is None:
            member.result.set_result(None)
        else:
            member.result.set_exception(error)


def _deliver(entry: _OpenEntry, replies: list[Reply]) -> None:
    """Gives each request of an entry its part of the reply."""
    [reply] = replies
    if not isinstance(reply, Vectors):  # a request that is not `partial` has an error for it
        raise TypeError(f"{type(reply).__name__} is no reply to {EMBED}.")
    for member in entry.members:
        if not member.result.done():
            member.result.set_result(_part_of(reply, member))


def _part_of(reply: Vectors, member: _Member) -> InferenceResult:
    first, end = member.first, member.first + member.num_inputs
    size, timing, tokens = 4 * reply.dim, reply.timing, reply.tokens[first:end]
    truncated = tuple([i - first for i in reply.truncated if first <= i < end]) if reply.truncated else ()
    data = reply.data[first * size : end * size]
    part = Vectors("", 0, member.num_inputs, reply.dim, data, timing, tokens, (), reply.revision, truncated)
    return InferenceResult(
        (part,), timing.queue_ms, timing.inference_ms, timing.batch_size, sum(tokens), timing.tokenize_ms, truncated
    )
