"""What the routes of one gateway share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from api.access import Gate
from api.cache import Cached
from api.dispatcher import Dispatcher
from api.settings import GatewaySettings
from redbatch import __version__
from shared.errors import ModelNotFound, NoWorker


@dataclass(slots=True)
class State:
    """The settings, the dispatcher, whether this gateway is on its way out, and who parses a large body.

    Without a `gate` everybody may ask, and without `cached` everything is computed.
    """

    settings: GatewaySettings
    dispatcher: Dispatcher
    gate: Gate | None = None
    cached: Cached | None = None
    draining: bool = False
    parsing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def missing(self) -> list[str]:
        """Returns what keeps this gateway from serving."""
        return ["draining"] if self.draining else self.dispatcher.missing()

    def models(self) -> list[dict[str, object]]:
        """Returns the models that live workers serve, as OpenAI lists them: a queue is one model's."""
        workers = self.dispatcher.monitor.workers()
        if not workers:
            return []
        created = min(each.started_ms for each in workers) // 1000
        return [{"id": self.settings.queue, "object": "model", "created": created, "owned_by": "redbatch"}]

    def model(self, name: str) -> dict[str, object]:
        """Returns one of them under any of its names. Raises ModelNotFound: no live worker serves it."""
        self.check_model(name)
        for found in self.models():
            return found | {"id": name}
        raise ModelNotFound("No worker serves it now.", param="model")

    def check_model(self, name: str) -> None:
        """Sees that this is the model here: by the name of its queue, or as its workers call it.

        As long as no worker was seen, any name may be right: admission knows how long to wait for one.

        Raises:
            ModelNotFound: it is another.
        """
        known = self.dispatcher.monitor.models
        if known and name != self.settings.queue and name not in known:
            raise ModelNotFound(f"There is no such model here. Served: {self.settings.queue}.", param="model")

    def info(self) -> dict[str, object]:
        """Returns what TEI tells of itself and its model. Raises NoWorker: nobody is there to ask."""
        workers = self.dispatcher.monitor.workers()
        told = next((each for each in workers if each.state != "loading"), None)
        if told is None:
            raise NoWorker("No worker serves a model now.")
        settings = self.settings
        return {
            "model_id": told.model,
            "model_sha": None,
            "model_dtype": told.dtype,
            "served_model_name": settings.queue,
            "model_type": {"embedding": {"pooling": told.pooling}},
            "max_concurrent_requests": settings.max_queue_inputs,
            "max_input_length": told.max_input_tokens,
            "max_batch_tokens": told.max_batch_tokens,
            "max_batch_requests": told.max_batch_size,
            "max_client_batch_size": settings.max_inputs,
            "auto_truncate": True,
            "tokenization_workers": len(workers),
            "version": __version__,
            "sha": None,
            "docker_label": None,
        }

    def compute_type(self) -> str:
        """Returns what the workers compute on, in TEI's words."""
        workers = self.dispatcher.monitor.workers()
        return "cpu" if all(each.device in ("", "cpu") for each in workers) else "gpu+optimized"

    def alive(self) -> bool:
        """Whether the process works at all."""
        return self.dispatcher.monitor.alive()
