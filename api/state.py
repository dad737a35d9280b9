"""What the routes of one gateway share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from api.http.auth import Gate
from api.http.body import Room
from api.queues import Queues, ServedQueue
from api.settings import GatewaySettings
from redbatch import __version__
from shared.errors import ModelNotFound, NoWorker
from shared.messages import LOADING, STANDBY


@dataclass(slots=True)
class State:
    """The settings, the queues, whether this gateway is on its way out, room for bodies, and who parses a large one.

    So many `uploads` of jobs as lines come in. Without a `gate` everybody may ask.
    """

    settings: GatewaySettings
    queues: Queues
    gate: Gate | None = None
    draining: bool = False
    uploads: int = 0
    room: Room = field(init=False)
    parsing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.room = Room(self.settings.max_bodies_bytes)

    def missing(self) -> list[str]:
        """Returns what keeps this gateway from serving."""
        return ["draining"] if self.draining else self.queues.missing()

    def models(self) -> list[dict[str, object]]:
        """Returns the models that live workers serve, as OpenAI lists them, by the names of their queues."""
        return [_model(queue, queue.name) for queue in self.queues.live()]

    def model(self, name: str) -> dict[str, object]:
        """Returns one of them under any of its names. Raises ModelNotFound: no live worker serves it."""
        try:
            queue = self.queues.named(name)
        except NoWorker as error:
            raise ModelNotFound(error.message, param="model") from None
        if not queue.workers():
            raise ModelNotFound("No worker serves it now.", param="model")
        return _model(queue, name)

    def info(self, model: str | None) -> dict[str, object]:
        """Returns what TEI tells of itself and a model; of the gateway's own for None.

        Raises:
            ModelNotFound: there is no such model.
            NoWorker: nobody is there to ask.
        """
        queue = self.queues.named(model)
        workers = queue.workers()
        told = next((each for each in workers if each.state not in (STANDBY, LOADING)), None)
        if told is None:
            raise NoWorker("No worker serves this model now.")
        settings = self.settings
        return {
            "model_id": told.model,
            "model_sha": told.commit or None,
            "model_dtype": told.dtype,
            "served_model_name": queue.name,
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

    def compute_type(self, model: str | None) -> str:
        """Returns what the workers of a model compute on, in TEI's words."""
        workers = self.queues.named(model).workers()
        return "cpu" if all(each.device in ("", "cpu") for each in workers) else "gpu+optimized"

    def alive(self) -> bool:
        """Whether the process works at all."""
        return self.queues.alive()


def _model(queue: ServedQueue, name: str) -> dict[str, object]:
    created = min(each.started_ms for each in queue.workers()) // 1000
    return {"id": name, "object": "model", "created": created, "owned_by": "redbatch"}
