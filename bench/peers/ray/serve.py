"""Ray Serve: a deployment whose method collects a batch."""

from __future__ import annotations

import os
import signal
from typing import Any

import orjson
import ray
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response

from bench.peers.models import argument_parser, load

CORES = os.cpu_count() or 1
MAX_ONGOING = 1_000
"""Maximum number of concurrent requests of a replica: the default of 5 would keep batches small."""


def deployment(model: str, batch_size: int, wait_ms: int) -> Any:
    """Returns the application."""

    @serve.deployment(
        num_replicas=1,
        max_ongoing_requests=MAX_ONGOING,
        # Ray sets the OpenMP threads of a replica to its reserved cores: all cores, which is also torch's default.
        ray_actor_options={"num_cpus": CORES},
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
    )
    class Embedder:
        def __init__(self) -> None:
            self.model = load(model)

        @serve.batch(max_batch_size=batch_size, batch_wait_timeout_s=wait_ms / 1000)
        async def embed(self, texts: list[str]) -> list[Any]:
            return list(self.model(texts))

        async def __call__(self, request: Request) -> Response:
            body = orjson.loads(await request.body())
            vector = await self.embed(body["text"])
            content = orjson.dumps({"embedding": vector}, option=orjson.OPT_SERIALIZE_NUMPY)
            return Response(content, media_type="application/json")

    deployed: Any = Embedder  # the return value of the decorator
    return deployed.bind()


if __name__ == "__main__":
    options = argument_parser().parse_args()
    ray.init(num_cpus=CORES, include_dashboard=False)
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=options.port, keep_alive_timeout_s=60))
    serve.run(deployment(options.model, options.batch_size, options.wait_ms), route_prefix="/embed")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()
