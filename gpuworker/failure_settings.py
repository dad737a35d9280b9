"""Settings about failures: engines that die or hang, exceptions of the model, and a model that is broken."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from gpuworker.policy.circuit import CircuitOptions
from gpuworker.policy.retries import RetryLimits
from gpuworker.settings_groups import RetrySettings
from shared.settings import QueueSettings


class FailureSettings(QueueSettings):
    """How often inputs run again, what is logged of exceptions, and when a worker stops."""

    max_attempts: int = Field(
        default=3,
        ge=1,
        le=100,
        title="How often an input may begin to run",
        description="How often an input may begin to run before it is answered input_failed.",
    )
    max_retries: int = Field(
        default=3,
        ge=0,
        le=100,
        title="Retries after an exception in retry_on",
        description="How often an input runs again after an exception that your class names in `retry_on`; then it is "
        "answered input_failed, and is a dead letter.",
    )
    retry_backoff_ms: float = Field(
        default=200.0,
        ge=0,
        le=30_000,
        title="Wait before the first of these retries",
        description="Wait before the first of these runs. It doubles each time, up to 30 s; a run that could not begin "
        "before the deadline is not waited for.",
    )
    error_messages: Literal["off", "log", "client"] = Field(
        default="off",
        title="Where messages of exceptions go",
        description="Where messages of the model's exceptions go, which may quote an input. off: nowhere, the log has "
        "types and tracebacks; log: into the log; client: also into the answer.",
    )
    circuit_after_s: float = Field(
        default=10.0,
        ge=0,
        le=3_600,
        title="Time of failures before claiming stops",
        description="A worker whose model fails on every batch for this long stops claiming entries for a while; 0: it "
        "goes on.",
    )
    circuit_backoff_s: float = Field(
        default=5.0,
        gt=0,
        le=60,
        title="How long it stops before it tries again",
        description="How long it stops before it tries one entry. Each time that this fails too, the time doubles, up "
        "to 60 s.",
    )
    engine_hang_s: float = Field(
        default=5.0,
        ge=0.1,
        le=3_600,
        title="Maximum engine time without progress",
        description="An engine that makes no progress for this long is killed; or, if that is longer, for ten times "
        "the time of its slowest batch. Before the first batch of its worker, the time is at least two minutes.",
    )
    max_dead_letters: int = Field(
        default=200,
        ge=0,
        le=100_000,
        title="Number of dead letters that Redis keeps",
        description="Number of given-up entries that Redis keeps for `redbatch dead`, the latest; 0 keeps none.",
    )

    @cached_property
    def retries(self) -> RetrySettings:
        """How often inputs run again, and what is kept of those given up."""
        limits = RetryLimits(self.max_retries, self.retry_backoff_ms / 1000)
        return RetrySettings(self.max_attempts, self.max_dead_letters, limits)

    @cached_property
    def circuit(self) -> CircuitOptions:
        """When a worker with a failing model stops claiming."""
        return CircuitOptions(self.circuit_after_s, self.circuit_backoff_s)
