"""What a gateway reports, as pydantic models: the models it serves, its limits, its health, and usage. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from api.dialects.response_models import examples
from shared.process.version import __version__

ModelType = dict[str, str | dict[str, str] | dict[str, int]]


class Info(BaseModel):
    """Answer of GET /info: the model and the limits, as TEI reports them."""

    model_config = examples(
        {
            "model_id": "minilm",
            "model_sha": None,
            "model_dtype": "float32",
            "served_model_name": "minilm",
            "model_type": {"embedding": {"pooling": "mean"}},
            "max_concurrent_requests": 20_000,
            "max_input_length": 256,
            "max_batch_tokens": 512,
            "max_batch_requests": 64,
            "max_client_batch_size": 2_048,
            "auto_truncate": True,
            "tokenization_workers": 1,
            "version": __version__,
            "sha": None,
            "docker_label": None,
        }
    )

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, ModelType]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: None = None
    docker_label: None = None


_MODEL = {"id": "minilm", "object": "model", "created": 1_795_573_889, "owned_by": "redbatch"}


class Model(BaseModel):
    """A model that live workers serve; `created` is when the oldest of them started (seconds since the epoch)."""

    model_config = examples(_MODEL)

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "redbatch"


class ModelList(BaseModel):
    """Answer of GET /v1/models."""

    model_config = examples({"object": "list", "data": [_MODEL]})

    object: Literal["list"] = "list"
    data: list[Model]


_USAGE_ROW = {
    "tenant": "web",
    "requests": 9_210,
    "refusals": 3,
    "failures": 0,
    "inputs": 27_630,
    "tokens": 331_560,
    "cached_tokens": 1_204,
    "device_ms": 41_870.114,
}


class TenantUsageRow(BaseModel):
    """Sums of a group. Only those of these that the request groups by are there: hour to operation."""

    model_config = examples(_USAGE_ROW)

    hour: str | SkipJsonSchema[None] = None
    day: str | SkipJsonSchema[None] = None
    tenant: str | SkipJsonSchema[None] = None
    model: str | SkipJsonSchema[None] = None
    operation: str | SkipJsonSchema[None] = None
    requests: int = Field(description="Answered with a result.")
    refusals: int = Field(description="Answered with a status from 400 to 499.")
    failures: int = Field(description="Answered with a status from 500.")
    inputs: int
    tokens: int = Field(description="That the model has read.")
    cached_tokens: int = Field(description="Of the inputs that the cache has answered.")
    device_ms: float = Field(description="Run time of batches in the model, shared out to their inputs by tokens.")


class TenantUsage(BaseModel):
    """Answer of GET /usage: sums by group, from an hour up to another, which is not part of them."""

    model_config = examples(
        {
            "from": "2026-11-25T14:00:00Z",
            "to": "2026-11-26T14:00:00Z",
            "group": ["tenant"],
            "rows": [_USAGE_ROW],
        }
    )

    since: str = Field(alias="from")
    to: str
    group: list[str]
    rows: list[TenantUsageRow]


class Health(BaseModel):
    """Whether a gateway lives, or can serve."""

    model_config = examples({"status": "ok"}, {"status": "unavailable", "missing": ["worker"]}, {"status": "stuck"})

    status: Literal["ok", "unavailable", "stuck"]
    missing: list[str] = Field(
        default_factory=list, description="draining, redis or worker; only if anything is missing."
    )
