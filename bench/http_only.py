"""A gateway without a queue: `python -m bench.http_only`, with a gateway's settings from the environment.

The HTTP side is that of a gateway: the server, the routes, reading the body and writing the vectors.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from api import server
from api.dialects.request import InferenceRequest, InferenceResult
from api.settings import GatewaySettings
from gpuworker.backends.simulated import SimulatedBackend
from gpuworker.model_spec import parse_model
from shared.messages import Timing, Vectors
from shared.process.logs import configure_logging

TEXT = "the same vector for every text"


class ConstantDispatcher:
    """Answers every request with the same vector of the null model."""

    in_flight = 0
    name = "http-only"

    def __init__(self, *_arguments: object) -> None:
        backend = SimulatedBackend(parse_model("null"))
        vector = backend.run(backend.collate(backend.tokenize([TEXT])), exclusive=True)
        vectors = Vectors("", 0, 1, backend.dim, vector.tobytes(), Timing(1.0, 1.0, 1))
        self._answer = InferenceResult((vectors,), 1.0, 1.0, 1)

    async def start(self) -> None:
        """Does nothing: there is no queue."""

    async def stop(self) -> None:
        """Does nothing."""

    def of_model(self, _model: str | None) -> ConstantDispatcher:
        """Returns this dispatcher for any model."""
        return self

    def serves(self, _model: str) -> bool:
        """Returns True: it has every model."""
        return True

    def with_input_type(self, request: InferenceRequest) -> InferenceRequest:
        """Returns the request: no model's name ends with an input type."""
        return request

    def check_op(self, *_arguments: object, **_named: object) -> None:
        """Allows every operation."""

    def check_revision(self, _revision: str) -> None:
        """Allows every revision."""

    def missing(self) -> list[str]:
        """Returns nothing."""
        return []

    def alive(self) -> bool:
        """Returns True."""
        return True

    async def answer(self, *_arguments: object) -> InferenceResult:
        """Returns the answer."""
        return self._answer


def main() -> int:
    """Serves until SIGTERM."""
    settings = GatewaySettings()
    configure_logging("gateway", settings.log_level)
    with patch.object(server, "Queues", ConstantDispatcher):
        return server.run(settings)


if __name__ == "__main__":
    sys.exit(main())
