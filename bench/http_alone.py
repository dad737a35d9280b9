"""A gateway without a queue behind it: `python -m bench.http_alone`, with a gateway's settings from the environment.

Everything of HTTP is a gateway's own: the server, the routes, reading the body and writing the vectors.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from api import server
from api.dispatch.dispatcher import Answered
from api.settings import GatewaySettings
from gpuworker.backends.simulated import HashingBackend
from gpuworker.models import parse_model
from shared.process.logs import configure_logging
from shared.messages import Timing, Vectors

TEXT = "the same vector for every text"


class Constant:
    """Answers every request with one and the same vector, which the null model gives."""

    in_flight = 0
    name = "http-alone"

    def __init__(self, *_settings_and_link: object) -> None:
        backend = HashingBackend(parse_model("null"))
        vector = backend.run(backend.collate(backend.tokenize([TEXT])), alone=True)
        vectors = Vectors("", 0, 1, backend.dim, vector.tobytes(), Timing(1.0, 1.0, 1))
        self._answer = Answered((vectors,), 1.0, 1.0, 1)

    async def start(self) -> None:
        """Does nothing: there is nothing behind it."""

    async def stop(self) -> None:
        """Does nothing."""

    def named(self, _model: str | None) -> Constant:
        """Returns itself, for any model."""
        return self

    def missing(self) -> list[str]:
        """Nothing is."""
        return []

    def alive(self) -> bool:
        """It is."""
        return True

    async def answer(self, *_asked: object) -> Answered:
        """Returns it."""
        return self._answer


def main() -> int:
    """Serves until SIGTERM."""
    settings = GatewaySettings()
    configure_logging("gateway", settings.log_level)
    with patch.object(server, "Queues", Constant):
        return server.run(settings)


if __name__ == "__main__":
    sys.exit(main())
