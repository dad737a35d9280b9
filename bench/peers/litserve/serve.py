"""LitServe: FastAPI in front of an inference process, with a queue between them."""

from __future__ import annotations

from typing import Any

import litserve
import orjson
from fastapi import Response

from bench.peers.models import argument_parser, load


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
        """Returns the vectors of a batch."""
        return self.embed(texts)

    def encode_response(self, vector: Any) -> Response:
        """Returns a serialized response: a dict would be encoded, slowly, by the only process that serves HTTP."""
        content = orjson.dumps({"embedding": vector}, option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(content, media_type="application/json")


if __name__ == "__main__":
    parser = argument_parser()
    parser.add_argument("--fast-queue", action="store_true")
    options = parser.parse_args()
    api = Embedder(options.model, options.batch_size, options.wait_ms)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60, fast_queue=options.fast_queue)
    server.run(
        host="127.0.0.1",
        port=options.port,
        num_api_servers=options.processes,
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
