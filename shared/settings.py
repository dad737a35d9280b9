"""Settings that both sides must agree on for the contract in Redis to hold."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

QUEUE_PATTERN = r"^[a-z0-9._-]{1,64}$"
QueueName = Annotated[str, StringConstraints(pattern=QUEUE_PATTERN)]
DEFAULT_MODEL = "minilm"


def queue_slug(model: str) -> str:
    """Returns the queue name of a model: what follows the last slash, in lower case, other characters as dashes.

    All simulated models have one name, whatever their times.
    """
    name = ("simulated" if model.startswith("simulated:") else model).rstrip("/").rsplit("/", 1)[-1].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", name)[:64].strip("-") or "default"


class QueueSettings(BaseSettings):
    """What a gateway and a worker read in common. Each field is `REDBATCH_<NAME>` in the environment."""

    model_config = SettingsConfigDict(env_prefix="REDBATCH_", frozen=True, extra="ignore")

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", description="Redis of the cluster (redis://, rediss:// or unix://)."
    )
    redis_timeout_s: float = Field(
        default=5.0, gt=0, le=60, description="Longest wait for one answer of Redis, and for a connection to it."
    )
    log_level: str = Field(
        default="info", pattern=r"^(debug|info|warning|error)$", description="debug, info, warning or error."
    )
