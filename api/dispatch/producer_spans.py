"""The spans of one queue, as the dispatcher uses them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from api.dispatch.inflight import InFlight


class ProducerSpans(Protocol):
    """The spans of one queue: each lasts from when a request is ready for it until the request is in the stream.

    api.tracing implements it, and is only imported if tracing is on.

    Attributes:
        client: the gateway's name in the queue.
    """

    client: str

    def begin(self, request: InFlight) -> None:
        """Starts the span of a request, and sets the `traceparent` that its entries carry."""

    def end(self, request: InFlight) -> None:
        """Ends the span: the request is in the stream. Another call changes nothing."""

    def job(self, lane: int) -> AbstractContextManager[str]:
        """Makes the span in which inputs of a job go into Redis; yields the `traceparent` that its entries carry."""
