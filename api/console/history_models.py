"""The history of queues as pydantic models, for OpenAPI only: `api.console.history` makes it. Pure."""

from __future__ import annotations

from pydantic import BaseModel, Field

from api.dialects.response_models import examples

_QUEUE = {
    "queue": "minilm",
    "requests_per_s": [20.8, None, 21.4],
    "p50_ms": [11.9, None, 12.5],
    "p99_ms": [38.1, None, 40.2],
    "failed": [0, None, 2],
}
_ERRORS = {"code": "queue_full", "last_minute": 3, "counts": [0, 1, 2]}


class QueueHistoryModel(BaseModel):
    """What the workers of a queue did in the 30 s before each time.

    Null where it is not known: a gateway did not serve the queue yet, Redis did not answer, or there was no latency.
    """

    model_config = examples(_QUEUE)

    queue: str
    requests_per_s: list[float | None]
    p50_ms: list[float | None] = Field(description="From the submission to the answer.")
    p99_ms: list[float | None]
    failed: list[int | None] = Field(description="Entries with an error that is not the client's fault.")


class ErrorHistory(BaseModel):
    """How often this gateway has answered an error with a code."""

    model_config = examples(_ERRORS)

    code: str
    last_minute: int
    counts: list[int] = Field(description="From the time before to each time.")


class ConsoleHistory(BaseModel):
    """Answer of GET /console/history: samples of the last `kept_s`, as columns of the length of `times_s`."""

    model_config = examples(
        {"age_s": 0.214, "kept_s": 300.0, "times_s": [-4.01, -2.0, 0.0], "queues": [_QUEUE], "errors": [_ERRORS]}
    )

    age_s: float = Field(description="Time since the last sample.")
    kept_s: float
    times_s: list[float] = Field(description="Of the samples, relative to the last: ascending, up to 0.")
    queues: list[QueueHistoryModel] = Field(description="The queues that this gateway serves now.")
    errors: list[ErrorHistory] = Field(description="Of this gateway alone; codes without an error are left out.")
