"""Sends small requests that arrive together in one entry, which costs Redis and a worker little more than one request.

If such an entry fails, and one of its inputs may be the reason, each of its requests is sent by itself: no client gets
an error for which the request of another one is the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import NamedTuple

import structlog

from api import metrics
from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.coalescing import CoalescingLoad, EntryBounds, SharedKey, entry_bounds, may_share, shared_key
from api.dispatch.inflight import InFlight
from api.dispatch.splitting import cost_of
from api.settings_groups import EntryLimits
from shared.errors import DeadlineExceededError, InternalError, ModelError, RedbatchError, RequestError
from shared.messages import EMBED, Input, Reply, Vectors
from shared.record import Record

log = structlog.get_logger()

MAX_OPEN = 64
"""Maximum entries to which requests are being added."""

SEND_WITHIN_S = 0.005
"""Time until an entry is sent if Redis is slow: otherwise it goes with the next submit, which is sooner."""

SEPARATE_S = 1.0
"""After an entry failed whose requests were then sent by themselves, further ones like these share none for this time.

One client whose inputs fail may go on sending them, and each would cost the others a second try.
"""


class CoalescedRequest(NamedTuple):
    """Requests as one: their inputs, the first deadline (event loop's clock, s), and how many they are."""

    request: InferenceRequest
    deadline: float
    num_coalesced: int


class _Member(Record, frozen=True):
    """A request in an entry: its first input there, their number, and its result; None: it must be sent by itself."""

    first: int
    num_inputs: int
    result: asyncio.Future[InferenceResult | None]


class _SharedEntry:
    """Requests that are sent in one entry. The first gives all but the inputs."""

    def __init__(self, request: InferenceRequest, deadline: float, timer: asyncio.TimerHandle) -> None:
        self.request, self.deadline, self.timer = request, deadline, timer
        self.inputs: list[Input] = []
        self.members: list[_Member] = []
        self.tokens = self.num_waiting = 0
        self.in_flight: InFlight | None = None

    def fits(self, request: InferenceRequest, tokens: int, bounds: EntryBounds) -> bool:
        """Whether a further request is within the bounds."""
        return (
            len(self.members) < bounds.requests
            and len(self.inputs) + len(request.inputs) <= bounds.inputs
            and self.tokens + tokens <= bounds.tokens
        )

    def add(self, request: InferenceRequest, tokens: int) -> asyncio.Future[InferenceResult | None]:
        """Adds a request; returns its result."""
        result: asyncio.Future[InferenceResult | None] = asyncio.get_running_loop().create_future()
        self.members.append(_Member(len(self.inputs), len(request.inputs), result))
        self.inputs += request.inputs
        self.tokens += tokens
        self.num_waiting += 1
        return result


class Coalescer:
    """Sends requests in entries that they share, and gives each its part of the answer.

    Args:
        limits: of entries.
        load: returns the present load.
        start: sends requests as one. Raises RequestError: it cannot be sent.
        end: called when that is answered, or all its clients have left.
        wake: called when there is something to send: `flush` is due before the next submit.
    """

    def __init__(
        self,
        limits: EntryLimits,
        load: Callable[[], CoalescingLoad],
        start: Callable[[CoalescedRequest], InFlight],
        end: Callable[[InFlight], None],
        wake: Callable[[], None],
    ) -> None:
        self._limits, self._load, self._start, self._end, self._wake = limits, load, start, end, wake
        self._open: dict[SharedKey, _SharedEntry] = {}
        self._separate_until: dict[SharedKey, float] = {}

    def bounds_for(self, request: InferenceRequest, now: float) -> EntryBounds | None:
        """Returns the bounds of the entry that a request is to share at a time (event loop's clock, s); None: none."""
        if not may_share(request):
            return None
        bounds = entry_bounds(self._limits, self._load())
        shares = bounds.requests > 1 and bounds.inputs > len(request.inputs) and len(self._open) < MAX_OPEN
        if not shares or (self._separate_until and now < self._separate_until.get(shared_key(request), now)):
            return None
        return bounds

    async def answer(self, request: InferenceRequest, deadline: float, bounds: EntryBounds) -> InferenceResult | None:
        """Returns the result of a request that shares an entry; None if it must be sent by itself.

        Raises:
            RedbatchError: the entry was refused, or its deadline has passed.
        """
        tokens = cost_of(EMBED, request.inputs, 0, request.options)
        entry = self._entry_for(request, deadline, tokens, bounds)
        result = entry.add(request, tokens)
        try:
            return await result
        finally:
            entry.num_waiting -= 1
            if not entry.num_waiting and entry.in_flight is not None:
                entry.in_flight.answer.cancel()  # all clients have left, or the answer is there

    def flush(self) -> None:
        """Sends all requests that wait."""
        for key in list(self._open):
            self._send(key)

    def _entry_for(self, request: InferenceRequest, deadline: float, tokens: int, bounds: EntryBounds) -> _SharedEntry:
        key = shared_key(request)
        entry = self._open.get(key)
        if entry is not None and not entry.fits(request, tokens, bounds):
            self._send(key)
            entry = None
        if entry is None:
            timer = asyncio.get_running_loop().call_later(SEND_WITHIN_S, self._send, key)
            entry = self._open[key] = _SharedEntry(request, deadline, timer)
            self._wake()
        return entry

    def _send(self, key: SharedKey) -> None:
        entry = self._open.pop(key)
        entry.timer.cancel()
        if not entry.num_waiting:
            return
        request = entry.request._replace(inputs=tuple(entry.inputs))
        try:
            in_flight = self._start(CoalescedRequest(request, entry.deadline, len(entry.members)))
        except Exception as error:  # noqa: BLE001 - the members wait for an answer
            self._fail(key, entry, error)
            return
        entry.in_flight = in_flight
        in_flight.answer.add_done_callback(partial(self._finish, key, entry, in_flight))
        if len(entry.members) > 1:
            metrics.COALESCED_REQUESTS.inc(len(entry.members))

    def _finish(
        self, key: SharedKey, entry: _SharedEntry, in_flight: InFlight, answer: asyncio.Future[list[Reply]]
    ) -> None:
        try:
            self._end(in_flight)
            if not answer.cancelled():  # otherwise all clients have left
                _deliver(entry, answer.result())
        except Exception as error:  # noqa: BLE001 - the members wait for an answer
            self._fail(key, entry, error)

    def _fail(self, key: SharedKey, entry: _SharedEntry, error: Exception) -> None:
        """Gives an error to all requests of an entry, unless one of them may be its reason and there are others."""
        if not isinstance(error, RedbatchError):
            log.error("an entry that requests share failed", exc_info=error)
            error = InternalError("The gateway failed: its log says why.")
        now = asyncio.get_running_loop().time()
        if len(entry.members) > 1 and isinstance(error, RequestError | ModelError):
            if now < entry.deadline:
                self._separate(key, now)
                _answer_all(entry, lambda: None)
                return
            error = DeadlineExceededError("No answer in time: the requests in its entry failed before.")
        _answer_all(entry, partial(copy, error))

    def _separate(self, key: SharedKey, now: float) -> None:
        log.debug("an entry failed: each of its requests is sent by itself", timeout_ms=key.timeout_ms)
        self._separate_until = {each: until for each, until in self._separate_until.items() if until > now}
        self._separate_until[key] = now + SEPARATE_S


def _answer_all(entry: _SharedEntry, make_error: Callable[[], RedbatchError | None]) -> None:
    """Answers all requests of an entry with an error, each with another object; None: it must be sent by itself."""
    for member in entry.members:
        if not member.result.done():
            error = make_error()
            if error is None:
                member.result.set_result(None)
            else:
                member.result.set_exception(error)


def _deliver(entry: _SharedEntry, replies: list[Reply]) -> None:
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
