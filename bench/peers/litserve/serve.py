"""LitServe: FastAPI in front of an inference process, with a queue between them."""

from __future__ import annotations

from typing import Any

import litserve
import orjson
from fastapi import Response

from bench.peers.models import arguments, load


class Embedder(litserve.LitAPI):
    """One inference process."""

    def __init__(self, model: str, batch_size: int, wait_ms: int) -> None:
        super().__init__(api_path="/embed", max_batch_size=batch_size, batch_timeout=wait_ms / 1000)
        self.model = model

    def setup(self, device: str) -> None:
        """Loads the model."""
        del device
        self.embed = load(self.model)

    def decode_request(self, request: dict[str, str]) -> str:
        """Returns the text of a request."""
        return request["text"]

    def predict(self, texts: list[str]) -> Any:
        """Answers a batch."""
        return self.embed(texts)

    def encode_response(self, vector: Any) -> Response:
        """Returns a response of its own: a dict would be encoded by the one process that speaks HTTP, and slowly."""
        content = orjson.dumps({"embedding": vector}, option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(content, media_type="application/json")


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--fast-queue", action="store_true")
    given = parser.parse_args()
    api = Embedder(given.model, given.batch_size, given.wait_ms)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60, fast_queue=given.fast_queue)
    server.run(
        host="127.0.0.1",
        port=given.port,
        num_api_servers=given.processes,
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
