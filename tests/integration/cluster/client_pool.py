"""Concurrent clients: each sends unique texts and checks by the vectors that the answer belongs to them."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.dispatcher import Dispatcher
from shared.errors import RedbatchError
from shared.messages import Vectors
from tests import plain_http
from tests.integration.gateway.gateway_cluster import log_lines, null_vector
from tests.processes import Program

EXTRA_S = 45.0
"""Time after the deadline until a request counts as hanging."""
INPUTS = re.compile(r"^redbatch_inputs_total (\S+)$", re.MULTILINE)


def is_result_for(result: InferenceResult, texts: Sequence[str]) -> bool:
    """Whether a result consists of the vectors of these texts, bit for bit and in order."""
    return b"".join(each.data for each in result.parts if isinstance(each, Vectors)) == b"".join(
        map(null_vector, texts)
    )


@dataclass
class ClientPool:
    """Sends requests to dispatchers in turn, each when an earlier one has ended.

    Attributes:
        num_requests: number of requests in total.
        max_in_flight: maximum number of requests in flight.
        request_sizes: numbers of inputs of requests, used in turn.
        outcomes: number of requests by outcome.
        num_sent_inputs: number of inputs that were sent.
    """

    dispatchers: Sequence[Dispatcher]
    num_requests: int
    max_in_flight: int
    request_sizes: Sequence[int] = (1,)
    timeout_ms: int = 60_000
    outcomes: Counter[str] = field(default_factory=Counter)
    num_sent_inputs: int = 0

    async def run(self) -> None:
        """Sends all requests and counts outcomes: ok, foreign (a vector of another text), hangs, or an error code."""
        numbers = iter(range(self.num_requests))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.max_in_flight, self.num_requests)):
                group.create_task(self._client(numbers))

    async def _client(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            size = self.request_sizes[number % len(self.request_sizes)]
            texts = [f"{number}/{i}" for i in range(size)]
            self.num_sent_inputs += size
            self.outcomes[await self._outcome(self.dispatchers[number % len(self.dispatchers)], texts)] += 1

    async def _outcome(self, dispatcher: Dispatcher, texts: Sequence[str]) -> str:
        try:
            async with asyncio.timeout(self.timeout_ms / 1000 + EXTRA_S):
                result = await dispatcher.answer(InferenceRequest(tuple(texts), self.timeout_ms))
        except RedbatchError as error:
            return error.code
        except TimeoutError:
            return "hangs"
        return "ok" if is_result_for(result, texts) else "foreign"


def num_inputs_run(worker: Program) -> int:
    """Returns the number of inputs that a worker's model has run, from its metrics."""
    port = next(line["admin_port"] for line in log_lines(worker) if "admin_port" in line)
    match = INPUTS.search(plain_http.get(f"http://127.0.0.1:{port}/metrics").text)
    return int(float(match.group(1))) if match else 0
