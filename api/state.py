"""What the routes of one gateway share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from api.http.auth import ApiKeyAuthenticator
from api.http.body import BodyBudget
from api.queues import Queues, ServedQueue
from api.settings import GatewaySettings
from api.tenants import Tenant, tenant_from_header, tenant_from_key
from shared.api_keys import Scope
from shared.errors import ModelNotFoundError, NoWorkerError
from shared.messages import LOADING, STANDBY
from shared.process.version import __version__


@dataclass(slots=True)
class State:
    """The settings, the queues, whether this gateway is on its way out, room for bodies, and who parses a large one.

    So many `uploads` of jobs as lines come in. Without a `authenticator` everybody may ask.
    """

    settings: GatewaySettings
    queues: Queues
    authenticator: ApiKeyAuthenticator | None = None
    draining: bool = False
    uploads: int = 0
    body_budget: BodyBudget = field(init=False)
    parse_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.body_budget = BodyBudget(self.settings.max_bodies_bytes)

    async def authenticate(self, headers: Mapping[str, str], address: str, scope: Scope) -> Tenant:
        """Returns the tenant of a request, from its API key, or from X-Tenant if this gateway requires no key.

        Raises:
            InvalidRequestError: X-Tenant is not a valid name.
            RedbatchError: the key is not accepted: see `ApiKeyAuthenticator.admit`.
        """
        if self.authenticator is None:
            return tenant_from_header(headers, self.settings)
        return tenant_from_key(await self.authenticator.admit(headers, address, scope), self.settings)

    def missing(self) -> list[str]:
        """Returns what keeps this gateway from serving."""
        return ["draining"] if self.draining else self.queues.missing()

    def models(self) -> list[dict[str, object]]:
        """Returns the models that live workers serve, as OpenAI lists them, by the names of their queues."""
        return [_model(queue, queue.name) for queue in self.queues.live()]

    def model(self, name: str) -> dict[str, object]:
        """Returns one of them under any of its names. Raises ModelNotFoundError: no live worker serves it."""
        try:
            queue = self.queues.of_model(name)
        except NoWorkerError as error:
            raise ModelNotFoundError(error.message, param="model") from None
        if not queue.workers():
            raise ModelNotFoundError("No worker serves it now.", param="model")
        return _model(queue, name)

    def info(self, model: str | None) -> dict[str, object]:
        """Returns what TEI tells of itself and a model; of the gateway's own for None.

        Raises:
            ModelNotFoundError: there is no such model.
            NoWorkerError: nobody is there to ask.
        """
        queue = self.queues.of_model(model)
        workers = queue.workers()
        told = next((each for each in workers if each.state not in (STANDBY, LOADING)), None)
        if told is None:
            raise NoWorkerError("No worker serves this model now.")
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
        workers = self.queues.of_model(model).workers()
        return "cpu" if all(each.device in ("", "cpu") for each in workers) else "gpu+optimized"

    def alive(self) -> bool:
        """Whether the process works at all."""
        return self.queues.alive()


def _model(queue: ServedQueue, name: str) -> dict[str, object]:
    created = min(each.started_ms for each in queue.workers()) // 1000
    return {"id": name, "object": "model", "created": created, "owned_by": "redbatch"}
