"""mosec: a Rust server that sends batches to a Python worker."""

from __future__ import annotations

import os
import sys
from typing import Any

import orjson
from mosec import Server, Worker

from bench.peers.models import argument_parser, load

TIMEOUT_S = 60


class Embedder(Worker):
    """One process with the model. It uses mosec's own JSON codec, with lists."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = load(os.environ["EMBED_MODEL"])

    def forward(self, data: list[dict[str, str]]) -> list[dict[str, Any]]:
        """Returns the vectors of a batch."""
        vectors = self.embed([each["text"] for each in data])
        return [{"embedding": self.listed(vector)} for vector in vectors]

    def listed(self, vector: Any) -> Any:
        """Returns a vector in a form that the codec can serialize."""
        return vector.tolist()


class LeanEmbedder(Embedder):
    """The same with orjson: to replace the codec, mosec's documentation overrides these two methods."""

    def listed(self, vector: Any) -> Any:
        """Returns the vector unchanged: orjson serializes numpy arrays."""
        return vector

    def deserialize(self, data: bytes) -> Any:
        """Parses JSON."""
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        """Serializes to JSON."""
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


if __name__ == "__main__":
    parser = argument_parser()
    parser.add_argument("--own-json", action="store_true")
    options = parser.parse_args()
    os.environ["EMBED_MODEL"] = options.model
    # mosec reads its own flags from the command line.
    flags = {"address": "127.0.0.1", "port": options.port, "timeout": TIMEOUT_S * 1000, "log-level": "warning"}
    sys.argv = [sys.argv[0], *(f"--{name}={value}" for name, value in flags.items())]
    server = Server()
    server.append_worker(
        Embedder if options.own_json else LeanEmbedder,
        num=options.processes,
        max_batch_size=options.batch_size,
        max_wait_time=options.wait_ms,
        timeout=TIMEOUT_S,
        route="/embed",
    )
    server.run()
