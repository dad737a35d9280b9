"""The state that the routes of one gateway share, and its reports about models and workers."""

from __future__ import annotations

from asyncio import Lock
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from api import metrics
from api.console.actions import QueueActions
from api.console.history_sampler import HistorySampler, activity_of
from api.console.leases import LeaseReport
from api.console.lists import QueueLists
from api.console.states import QueueStates
from api.console.tenant_report import TenantReport
from api.dialects.report_models import Info, Model, ModelType
from api.fair_lock import FairLock
from api.http.auth import ApiKeyAuthenticator, is_for_this_machine
from api.http.host_header import check_own_name
from api.memory_budget import MemoryBudget
from api.queues import Queues
from api.served_queue import ServedQueue
from api.settings import GatewaySettings
from api.settings_groups import JobSettings, RequestLimits, TenantSettings
from api.tenants import Tenant, tenant_from_header, tenant_from_key
from shared.api_keys import Scope
from shared.connection import RedisConnection
from shared.errors import ModelNotFoundError, NoWorkerError
from shared.gpu_pools import PoolMember
from shared.heartbeats import label_names
from shared.messages import CLASSIFY, EMBED, EMBED_SPARSE, LOADING, PREDICT, SCORE, STANDBY, Heartbeat
from shared.model_names import public_model
from shared.process.version import __version__
from shared.redis_url import one_per_keyspace
from shared.shard_connections import ShardConnection
from shared.usage_counts import UsageCounts


@dataclass(slots=True)
class State:
    """The state of one gateway.

    Attributes:
        settings: all of them; `limits`, `tenants` and `jobs` are groups of these, built once.
        queues: the queues that it serves.
        usage: what tenants use of the gateway, until that is in Redis.
        usage_readers: read what they have used of the cluster, from each Redis.
        authenticator: checks API keys; None if every client is admitted.
        action_authenticator: checks those of actions, which every gateway requires; None if it takes no actions.
        shards: reads the state of queues from each shard; `queue_states` and `queue_lists` have it, for all viewers.
        requeue_shards: waits for the answers of dead letters that `queue_actions` runs again.
        history: what the queues did in the last minutes.
        tenant_report: what tenants have used lately, and their limits.
        lease_report: who holds shared GPUs.
        draining: whether the gateway is shutting down.
        uploads: number of jobs whose lines are being received, by tenant.
        admin_port: where the metrics of this gateway are; 0 before it listens there.
        body_budget: bounds the bytes of bodies that are received.
        in_flight_budget: bounds the bytes of inputs and results of the requests in flight.
        parse_lock: held while a large body is parsed.
        result_lock: held while a portion of a job's results is read from Redis and encoded.
        usage_lock: held while a report of usage is made.
    """

    settings: GatewaySettings
    queues: Queues
    usage: UsageCounts
    usage_readers: Sequence[RedisConnection]
    authenticator: ApiKeyAuthenticator | None = None
    shards: Sequence[ShardConnection] = ()
    action_authenticator: ApiKeyAuthenticator | None = None
    requeue_shards: Sequence[ShardConnection] = ()
    draining: bool = False
    uploads: Counter[str] = field(default_factory=Counter)
    admin_port: int = 0
    limits: RequestLimits = field(init=False)
    tenants: TenantSettings = field(init=False)
    jobs: JobSettings = field(init=False)
    queue_states: QueueStates = field(init=False)
    queue_lists: QueueLists = field(init=False)
    queue_actions: QueueActions = field(init=False)
    history: HistorySampler = field(init=False)
    tenant_report: TenantReport = field(init=False)
    lease_report: LeaseReport = field(init=False)
    body_budget: MemoryBudget = field(init=False)
    in_flight_budget: MemoryBudget = field(init=False)
    parse_lock: FairLock = field(default_factory=FairLock)
    result_lock: FairLock = field(default_factory=FairLock)
    usage_lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.limits, self.tenants, self.jobs = self.settings.requests, self.settings.tenants, self.settings.jobs
        self.queue_states = QueueStates(self.shards, lambda: self.queues.names)
        self.queue_lists = QueueLists(self.shards)
        self.queue_actions = QueueActions(self.shards, self.requeue_shards)
        self.history = HistorySampler(lambda: self.queues.names, lambda name: activity_of(self.queues.of_name(name)))
        keyspaces = one_per_keyspace([each.place for each in self.shards], self.shards)
        requires_keys = self.authenticator is not None
        self.tenant_report = TenantReport(keyspaces, self.tenants, requires_keys=requires_keys)
        self.lease_report = LeaseReport(self.shards, lambda: map(PoolMember._make, self.queues.workers()))
        self.body_budget = MemoryBudget(self.settings.max_bodies_bytes)
        self.in_flight_budget = MemoryBudget(self.settings.max_in_flight_bytes)
        metrics.IN_FLIGHT_BYTES.set_function(lambda: self.in_flight_budget.num_bytes)

    async def authenticate(self, headers: Mapping[str, str], address: str, scope: Scope) -> Tenant:
        """Returns the tenant of a request, from its API key, or from X-Tenant if this gateway requires no key.

        Raises:
            InvalidRequestError: X-Tenant is not a valid name.
            ForbiddenError: without keys, the page of another site may have sent the request.
            RedbatchError: the key is not accepted: see `ApiKeyAuthenticator.admit`.
        """
        if self.authenticator is None:
            if scope == "admin" and is_for_this_machine(self.settings):
                check_own_name(headers.get("host", ""))
            return tenant_from_header(headers, self.tenants)
        key = await self.authenticator.admit(headers, address, scope)
        return tenant_from_key(key.key_id, key.tenant, key.quota, self.tenants)

    def missing(self) -> list[str]:
        """Returns the reasons why this gateway cannot serve: draining, redis, worker; an empty list if it can."""
        return ["draining"] if self.draining else self.queues.missing()

    def models(self) -> list[Model]:
        """Returns the models that live workers serve, in OpenAI's format, by the names of their queues."""
        return [_model(queue, queue.name) for queue in self.queues.live()]

    def model(self, name: str) -> Model:
        """Returns one model, by any of its names. Raises ModelNotFoundError: no live worker serves it."""
        try:
            queue = self.queues.of_model(name)
        except NoWorkerError as error:
            raise ModelNotFoundError(error.message, param="model") from None
        if not queue.workers():
            raise ModelNotFoundError("No worker serves this model now.", param="model")
        return _model(queue, name)

    def info(self, model: str | None) -> Info:
        """Returns TEI's description of the server and a model; of the gateway's own model for None.

        Raises:
            InvalidRequestError: the model is None, and there are several.
            ModelNotFoundError: there is no such model.
            NoWorkerError: no worker of the model has loaded it.
        """
        queue = self.queues.of_model(model)
        workers = queue.workers()
        loaded = next((each for each in workers if each.state not in (STANDBY, LOADING)), None)
        if loaded is None:
            raise NoWorkerError("No worker serves this model now.")
        return Info(
            model_id=public_model(loaded.model) or queue.name,
            model_sha=loaded.commit or None,
            model_dtype=loaded.dtype,
            served_model_name=queue.name,
            model_type=_model_type(loaded),
            max_concurrent_requests=self.settings.max_queue_inputs,
            max_input_length=loaded.max_input_tokens,
            max_batch_tokens=loaded.max_batch_tokens,
            max_batch_requests=loaded.max_batch_size,
            max_client_batch_size=self.limits.max_inputs,
            auto_truncate=True,
            tokenization_workers=len(workers),
            version=__version__,
        )

    def compute_type(self, model: str | None) -> str:
        """Returns the kind of device that the workers of a model compute on, as TEI names it."""
        workers = self.queues.of_model(model).workers()
        return "cpu" if all(each.device in ("", "cpu") for each in workers) else "gpu+optimized"

    def alive(self) -> bool:
        """Whether the event loop of the gateway still runs."""
        return self.queues.alive()


def _model_type(worker: Heartbeat) -> dict[str, ModelType]:
    """Returns what a model is, as TEI describes it. TEI has no functions: their type is our own."""
    if PREDICT in worker.ops:
        return {"function": {}}
    if EMBED_SPARSE in worker.ops and EMBED not in worker.ops:
        return {"embedding": {"pooling": "splade"}}
    if CLASSIFY not in worker.ops:
        return {"embedding": {"pooling": worker.pooling}}
    names = label_names(worker)
    labels: ModelType = {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
    return {"reranker" if SCORE in worker.ops else "classifier": labels}


def _model(queue: ServedQueue, name: str) -> Model:
    created_s = min(each.started_ms for each in queue.workers()) // 1000
    return Model(id=name, created=created_s)
