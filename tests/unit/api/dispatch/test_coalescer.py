"""Which requests share an entry, and what each of them gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.coalescer import SEPARATE_S, CoalescedRequest, Coalescer
from api.dispatch.coalescing import CoalescingLoad
from api.dispatch.inflight import InFlight
from api.settings_groups import EntryLimits
from api.tenants import Tenant
from shared.errors import DeadlineExceededError, InvalidRequestError, ModelFailingError, QueueFullError, RedbatchError
from shared.messages import NewEntry, Options, Reply, Timing, Vectors
from tests.waiting import wait_until

LIMITS = EntryLimits(max_inputs=32, max_requests=16, min_per_worker=4)
DIM = 2
BUSY = CoalescingLoad(64, 1, 4 * DIM, min_long_tokens=1_000, max_batch_size=64)


class Queue:
    """Takes the place of the queue: records what is sent, and answers once `answer` is called.

    Attributes:
        sent: each request that was sent, with what answers it.
        ended: what has ended.
        refusal: raised in place of sending.
        fault: raised in place of ending.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[CoalescedRequest, InFlight]] = []
        self.ended: list[InFlight] = []
        self.refusal: Exception | None = None
        self.fault: Exception | None = None
        self.coalescer = Coalescer(LIMITS, lambda: BUSY, self._start, self._end, lambda: None)

    def _start(self, coalesced: CoalescedRequest) -> InFlight:
        if self.refusal is not None:
            raise self.refusal
        entry = NewEntry(0, len(coalesced.request.inputs), 1, b"")
        in_flight = InFlight(f"{len(self.sent)}", [entry], coalesced.deadline, coalesced.request)
        self.sent.append((coalesced, in_flight))
        return in_flight

    def _end(self, in_flight: InFlight) -> None:
        self.ended.append(in_flight)
        if self.fault is not None:
            raise self.fault

    async def send(self, request: InferenceRequest, deadline: float) -> InferenceResult | None:
        """Sends a request that is to share an entry."""
        bounds = self.coalescer.bounds_for(request, asyncio.get_running_loop().time())
        assert bounds is not None
        return await self.coalescer.answer(request, deadline, bounds)

    async def answer(self, *requests: InferenceRequest, time_left_s: float = 60.0) -> list[Any]:
        """Answers requests that arrive together, and has the queue answer what was sent."""
        calls = await self.begin(*requests, time_left_s=time_left_s)
        for coalesced, in_flight in self.sent:
            in_flight.accept(vectors_of(in_flight.request_id, coalesced.request.inputs))
        return await asyncio.gather(*calls, return_exceptions=True)

    async def begin(self, *requests: InferenceRequest, time_left_s: float = 60.0) -> list[asyncio.Task[Any]]:
        """Sends requests that arrive together."""
        deadline = asyncio.get_running_loop().time() + time_left_s
        calls = [asyncio.create_task(self.send(each, deadline)) for each in requests]
        await asyncio.sleep(0)
        self.coalescer.flush()
        return calls


def request(*inputs: str, **fields: Any) -> InferenceRequest:  # noqa: ANN401 - any field of a request
    """Returns a request of texts."""
    return InferenceRequest(inputs, **{"timeout_ms": 1_000, **fields})


def vector_of(text: str) -> list[float]:
    """Returns the vector of a text here."""
    return [float(len(text)), float(sum(text.encode()))]


def vectors_of(request_id: str, inputs: Any) -> Reply:  # noqa: ANN401 - texts
    """Returns the reply to an entry; texts that begin with x are truncated."""
    data = np.array([vector_of(each) for each in inputs], dtype="<f4").tobytes()
    truncated = tuple(i for i, each in enumerate(inputs) if each.startswith("x"))
    return Vectors(
        request_id, 0, len(inputs), DIM, data, Timing(3.0, 2.0, 7), tuple(map(len, inputs)), (), "r", truncated
    )


def check(result: InferenceResult | None, texts: tuple[str, ...]) -> None:
    """Checks that a result is that of texts."""
    assert result is not None
    [part] = result.parts
    assert isinstance(part, Vectors)
    assert np.frombuffer(part.data, "<f4").reshape(-1, DIM).tolist() == [vector_of(each) for each in texts]
    assert (part.n, part.position, part.tokens) == (len(texts), 0, tuple(map(len, texts)))
    assert result.truncated == tuple(i for i, each in enumerate(texts) if each.startswith("x"))
    assert (result.tokens, result.batch_size, result.queue_ms, part.revision) == (sum(map(len, texts)), 7, 3.0, "r")


async def test_each_request_gets_its_own_vectors() -> None:
    """Requests that arrive together go as one entry with all their inputs; each gets its part of the reply."""
    queue, texts = Queue(), [("a",), ("xyz", "bb"), ("ccc",), ("d", "xx", "e", "f")]
    results = await queue.answer(*(request(*each) for each in texts))
    [(coalesced, _)] = queue.sent
    assert (coalesced.request.inputs, coalesced.num_coalesced) == (sum(texts, ()), 4)
    for result, each in zip(results, texts, strict=True):
        check(result, each)
    assert len(queue.ended) == 1


async def test_the_tokens_of_an_entry_are_bounded() -> None:
    """It may have half of what makes an entry long: here 499 tokens, of texts with 102 each."""
    queue = Queue()
    await queue.answer(*(request("a" * 400) for _ in range(6)))
    assert [len(each.request.inputs) for each, _ in queue.sent] == [4, 2]


async def test_an_instruction_counts_with_each_input() -> None:
    """The model reads it before each text: here 102 tokens, beside 2 of each text."""
    queue = Queue()
    await queue.answer(*(request("a", options=Options(instruction="b" * 400)) for _ in range(6)))
    assert [len(each.request.inputs) for each, _ in queue.sent] == [4, 2]


async def test_an_entry_has_a_maximum_of_requests() -> None:
    """What exceeds it begins the next entry."""
    queue = Queue()
    results = await queue.answer(*(request(f"{i}") for i in range(37)))
    assert [len(each.request.inputs) for each, _ in queue.sent] == [16, 16, 5]
    for i, result in enumerate(results):
        check(result, (f"{i}",))


@pytest.mark.parametrize(
    "other",
    [{"options": Options(dimensions=1)}, {"tenant": Tenant("other")}, {"timeout_ms": 999}],
)
async def test_requests_that_differ_share_no_entry(other: dict[str, Any]) -> None:
    """Those in an entry have the same options, tenant and timeout."""
    queue = Queue()
    await queue.answer(request("a"), request("b", **other), request("c"))
    assert [each.request.inputs for each, _ in queue.sent] == [("a", "c"), ("b",)]
    assert queue.sent[1][0].request == request("b", **other)


async def test_an_entry_goes_without_a_submit() -> None:
    """While Redis is slow, it waits no longer than a bound."""
    queue = Queue()
    call = asyncio.create_task(queue.send(request("a"), asyncio.get_running_loop().time() + 60))
    await wait_until(lambda: bool(queue.sent), "the entry is sent")
    queue.sent[0][1].accept(vectors_of("0", ("a",)))
    check(await call, ("a",))


def fail(in_flight: InFlight) -> None:
    """Answers with an error that is the fault of one input."""
    in_flight.fail(InvalidRequestError("Input 1: too long."))


async def test_requests_of_a_failed_entry_are_sent_by_themselves() -> None:
    """None gets the error of another one."""
    queue = Queue()
    calls = await queue.begin(request("a"), request("b"))
    fail(queue.sent[0][1])
    assert await asyncio.gather(*calls) == [None, None]


async def test_after_a_failure_similar_requests_share_nothing_for_a_time() -> None:
    """An input that fails again and again would otherwise cost the others a second try each time."""
    queue = Queue()
    calls = await queue.begin(request("a"), request("b"))
    fail(queue.sent[0][1])
    assert await asyncio.gather(*calls) == [None, None]
    now = asyncio.get_running_loop().time()
    assert queue.coalescer.bounds_for(request("a"), now) is None
    assert queue.coalescer.bounds_for(request("a", tenant=Tenant("other")), now) is not None
    assert queue.coalescer.bounds_for(request("a"), now + SEPARATE_S) is not None


@pytest.mark.parametrize(
    "error",
    [
        QueueFullError("The queue is full.", retry_after_s=1.5),
        ModelFailingError("The model does not load."),
        DeadlineExceededError("No answer was possible."),
    ],
)
async def test_what_holds_for_all_is_the_error_of_each(error: RedbatchError) -> None:
    """No input is the reason: a second try would only add to the load. Each gets its own object."""
    queue = Queue()
    calls = await queue.begin(request("a"), request("b"))
    queue.sent[0][1].fail(error)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in answers] == [type(error)] * 2
    assert answers[0] is not answers[1]
    assert [(each.message, each.retry_after_s) for each in answers if isinstance(each, RedbatchError)] == [
        (error.message, error.retry_after_s)
    ] * 2
    assert queue.coalescer.bounds_for(request("a"), asyncio.get_running_loop().time()) is not None


@pytest.mark.parametrize("where", ["refusal", "fault"])
async def test_a_fault_of_the_gateway_is_an_answer(where: str) -> None:
    """Whatever fails, no client waits for ever."""
    queue = Queue()
    setattr(queue, where, KeyError("unexpected"))
    answers = await queue.answer(request("a"), request("b"))
    assert answers == [None, None]


async def test_requests_that_cannot_be_sent_together_are_sent_by_themselves() -> None:
    """For example, if one of them has a character that UTF-8 cannot carry."""
    queue = Queue()
    queue.refusal = InvalidRequestError("An input holds a lone surrogate.")
    assert await queue.answer(request("a"), request("\ud800")) == [None, None]


async def test_the_only_request_of_an_entry_gets_its_error() -> None:
    """It would get the same alone."""
    queue = Queue()
    [call] = await queue.begin(request("a"))
    fail(queue.sent[0][1])
    with pytest.raises(InvalidRequestError):
        await call
    assert queue.coalescer.bounds_for(request("a"), asyncio.get_running_loop().time()) is not None


@pytest.mark.parametrize("strike", [fail, lambda each: each.expire(DeadlineExceededError("No answer in time."))])
async def test_all_requests_of_an_entry_expire(strike: Callable[[InFlight], object]) -> None:
    """Once their deadline has passed there is no time for a second try; none gets the error of another one's input."""
    queue = Queue()
    calls = await queue.begin(request("a"), request("b"), time_left_s=0.0)
    strike(queue.sent[0][1])
    assert [type(each) for each in await asyncio.gather(*calls, return_exceptions=True)] == [DeadlineExceededError] * 2


async def test_an_entry_lasts_as_long_as_one_of_its_clients() -> None:
    """A client that leaves takes nothing from the others; with the last one the entry is cancelled."""
    queue = Queue()
    calls = await queue.begin(request("a"), request("b"))
    calls[0].cancel()
    await asyncio.sleep(0)
    in_flight = queue.sent[0][1]
    assert not in_flight.done
    calls[1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)
    assert in_flight.answer.cancelled()
    assert queue.ended == [in_flight]


async def test_nothing_is_sent_for_clients_that_have_left() -> None:
    """All left before the submit."""
    queue = Queue()
    call = asyncio.create_task(queue.send(request("a"), asyncio.get_running_loop().time() + 60))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    queue.coalescer.flush()
    assert not queue.sent
