"""Lists and actions of the console as pydantic models, for OpenAPI only. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from api.console.state_models import UnreachableShard
from api.dialects.response_models import EXAMPLE_ID, EXAMPLE_JOB_ID, examples

LETTER_ID = "1795573996421-0"
_LETTER: dict[str, Any] = {
    "id": LETTER_ID,
    "died": "2026-11-25 02:33:16",
    "submitted": "2026-11-25 02:33:12",
    "lane": "interactive",
    "inputs": 2,
    "attempts": 3,
    "worker": "gpu-1-7f3a",
    "error": "input_failed: the engine died 3 times while it ran this input",
}
_IDS = {"request_id": EXAMPLE_ID, "entry_id": "1795573992003-0"}
_LISTED = {**_LETTER, "age_s": 12.5}
_TEXTS = {**_LETTER, **_IDS, "options": {}, "texts": ["hello world"]}
_JOB: dict[str, Any] = {
    "id": EXAMPLE_JOB_ID,
    "status": "running",
    "owner": "search",
    "op": "embed",
    "lane": "bulk",
    "n": 100_000,
    "done": 40_000,
    "failed": 3,
    "truncated_inputs": 0,
    "revisions": ["8aadba9b60fb7294"],
    "created": "2026-11-25 02:33:16",
    "started": "2026-11-25 02:33:16",
    "finished": None,
    "expires": "2026-11-26 02:33:16",
    "kept_until": None,
}
_CANCELLED = {**_JOB, "status": "cancelled", "finished": "2026-11-25 02:40:00", "kept_until": "2026-11-25 03:40:00"}
_MAY_ACT = "Whether the key of the request may act. If not, ids are left out or shortened that give access to jobs."
_TOTAL = "Number of all; null if no Redis answers."


class _Letter(BaseModel):
    id: str = Field(description="Begins with `N@` if the letter is on shard N, except for shard 0.")
    died: str = Field(description="UTC.")
    submitted: str
    lane: str
    inputs: int
    attempts: int
    worker: str
    error: str = Field(description="What the client received.")


class ListedLetter(_Letter):
    """A dead letter, without its texts."""

    model_config = examples(_LISTED, {**_LISTED, **_IDS})

    request_id: str = Field("", description="Only if the key may act.")
    entry_id: str = Field("", description="Only if the key may act.")
    age_s: float


class DeadLetterText(_Letter):
    """A dead letter with its texts."""

    model_config = examples(_TEXTS)

    request_id: str
    entry_id: str
    options: dict[str, Any] = Field(description="Options of the request that differ from the defaults.")
    texts: list[str | list[int]] | None = Field(
        description="The inputs; binary ones by kind, size and digest; null if they were not kept."
    )


class DeadLetterList(BaseModel):
    """The newest dead letters of a queue, at most 50."""

    model_config = examples({"queue": "minilm", "may_act": False, "total": 1, "problems": [], "letters": [_LISTED]})

    queue: str
    may_act: bool = Field(description=_MAY_ACT)
    total: int | None = Field(description=_TOTAL)
    problems: list[UnreachableShard]
    letters: list[ListedLetter]


class RequeuedLetter(BaseModel):
    """Outcome of a requeue: an answered letter is deleted; one that is given up again is replaced by a new one."""

    model_config = examples(
        {"id": LETTER_ID, "answered": True, "error": ""},
        {
            "id": LETTER_ID,
            "answered": False,
            "error": "no answer in time: check with `redbatch queue` that a worker is alive",
        },
    )

    id: str
    answered: bool
    error: str = Field(description="Why it was not answered, in words.")


class DeletedLetter(BaseModel):
    """A dead letter that was deleted."""

    model_config = examples({"id": LETTER_ID, "deleted": True})

    id: str
    deleted: bool


class QueueJob(BaseModel):
    """A job, as `redbatch jobs show --json` prints it; times are in UTC."""

    model_config = examples(_JOB)

    id: str
    status: str
    owner: str
    op: str
    lane: str
    n: int
    done: int
    failed: int
    truncated_inputs: int
    revisions: list[str]
    created: str | None
    started: str | None
    finished: str | None
    expires: str | None
    kept_until: str | None


class ListedJob(QueueJob):
    """A job in a list."""

    model_config = examples({**_JOB, "age_s": 404.2})

    age_s: float


class JobList(BaseModel):
    """The newest jobs of a queue, at most 50."""

    model_config = examples(
        {
            "queue": "minilm",
            "may_act": True,
            "total": 1,
            "deleted": 0,
            "problems": [],
            "jobs": [{**_JOB, "age_s": 404.2}],
        }
    )

    queue: str
    may_act: bool = Field(description=_MAY_ACT)
    total: int | None = Field(description=_TOTAL)
    deleted: int | None = Field(description="Number of those that were deleted after their end; they are not listed.")
    problems: list[UnreachableShard]
    jobs: list[ListedJob]


class CancelledJobModel(BaseModel):
    """Outcome of a cancellation."""

    model_config = examples(
        {
            "id": EXAMPLE_JOB_ID,
            "changed": True,
            "outcome": f"{EXAMPLE_JOB_ID}: cancelled, 40,000 of 100,000 inputs were done",
            "job": _CANCELLED,
        }
    )

    id: str
    changed: bool = Field(description="False if it was cancelled or deleted before.")
    outcome: str
    job: QueueJob
