"""mosec: a Rust server in front of a Python worker that it gives batches to."""

from __future__ import annotations

import os
import sys
from typing import Any

import orjson
from mosec import Server, Worker

from bench.peers.models import arguments, load

TIMEOUT_S = 60


class Embedder(Worker):
    """One process with the model. Its JSON is mosec's own, of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = load(os.environ["EMBED_MODEL"])

    def forward(self, data: list[dict[str, str]]) -> list[dict[str, Any]]:
        """Answers a batch."""
        vectors = self.embed([each["text"] for each in data])
        return [{"embedding": self.listed(vector)} for vector in vectors]

    def listed(self, vector: Any) -> Any:
        """Returns a vector as the codec takes it."""
        return vector.tolist()


class LeanEmbedder(Embedder):
    """The same with orjson: mosec's documentation has these two methods overridden for another codec."""

    def listed(self, vector: Any) -> Any:
        """Returns it as it is: orjson reads numpy."""
        return vector

    def deserialize(self, data: bytes) -> Any:
        """Reads JSON."""
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        """Writes JSON."""
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--own-json", action="store_true")
    given = parser.parse_args()
    os.environ["EMBED_MODEL"] = given.model
    # mosec reads its own flags from the command line.
    flags = {"address": "127.0.0.1", "port": given.port, "timeout": TIMEOUT_S * 1000, "log-level": "warning"}
    sys.argv = [sys.argv[0], *(f"--{name}={value}" for name, value in flags.items())]
    server = Server()
    server.append_worker(
        Embedder if given.own_json else LeanEmbedder,
        num=given.processes,
        max_batch_size=given.batch_size,
        max_wait_time=given.wait_ms,
        timeout=TIMEOUT_S,
        route="/embed",
    )
    server.run()
