"""The spans of what goes into one queue. The implementation is in api.tracing, which is only imported when traced."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from api.dispatch.inflight import InFlight


class ProducerSpans(Protocol):
    """Makes the spans of one queue: from when a request is ready for it, to when it is in the stream.

    Attributes:
        client: what the gateway is called there.
    """

    client: str

    def begin(self, request: InFlight) -> None:
        """Opens the span of a request; its entries are to name it."""

    def sent(self, request: InFlight) -> None:
        """Ends it: the request is in the stream. To call this again changes nothing."""

    def job(self, lane: int) -> AbstractContextManager[str]:
        """Makes the span in which inputs of a job go into Redis; returns what its entries are to carry."""
