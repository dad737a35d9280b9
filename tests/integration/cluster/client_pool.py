"""A crowd of clients: each sends texts of its own and proves by the vectors that the answer is for them."""

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

PATIENCE_S = 45.0
INPUTS = re.compile(r"^redbatch_inputs_total (\S+)$", re.MULTILINE)


def is_result_for(answered: InferenceResult, texts: Sequence[str]) -> bool:
    """Whether these are the vectors of these texts, bit for bit and in order."""
    return b"".join(each.data for each in answered.parts if isinstance(each, Vectors)) == b"".join(
        map(null_vector, texts)
    )


@dataclass
class ClientPool:
    """Sends `requests` in all over some dispatchers, at most `at_once` in flight; `inputs` of each in turn."""

    dispatchers: Sequence[Dispatcher]
    requests: int
    at_once: int
    inputs: Sequence[int] = (1,)
    timeout_ms: int = 60_000
    outcomes: Counter[str] = field(default_factory=Counter)
    sent_inputs: int = 0

    async def run(self) -> None:
        """Returns when every request has its outcome: ok, foreign (another's vector), or the code of its error."""
        numbers = iter(range(self.requests))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.at_once, self.requests)):
                group.create_task(self._client(numbers))

    async def _client(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            size = self.inputs[number % len(self.inputs)]
            texts = [f"{number}/{i}" for i in range(size)]
            self.sent_inputs += size
            self.outcomes[await self._outcome(self.dispatchers[number % len(self.dispatchers)], texts)] += 1

    async def _outcome(self, dispatcher: Dispatcher, texts: Sequence[str]) -> str:
        try:
            async with asyncio.timeout(self.timeout_ms / 1000 + PATIENCE_S):
                answered = await dispatcher.answer(InferenceRequest(tuple(texts), self.timeout_ms))
        except RedbatchError as error:
            return error.code
        except TimeoutError:
            return "hangs"
        return "ok" if is_result_for(answered, texts) else "foreign"


def num_inputs_run(worker: Program) -> int:
    """Returns how many inputs a worker's model has run, as its metrics tell."""
    port = next(line["admin_port"] for line in log_lines(worker) if "admin_port" in line)
    found = INPUTS.search(plain_http.get(f"http://127.0.0.1:{port}/metrics").text)
    return int(float(found.group(1))) if found else 0
