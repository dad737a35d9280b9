"""Jobs as people and programs read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from redbatch.timestamps import moment
from redbatch.progress import as_time
from shared.jobs import Job
from shared.keys import LANES
from shared.messages import Failure


def as_dict(queue: str, job: Job, failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """Returns a job as JSON has it."""
    found: dict[str, Any] = {
        "id": f"{queue}.{job.job_id}",
        "status": job.status,
        "owner": job.owner,
        "lane": LANES[job.lane],
        "n": job.n,
        "done": job.done,
        "failed": job.failed,
        "revisions": list(job.revisions),
        "created": _moment(job.created_ms),
        "started": _moment(job.started_ms),
        "finished": _moment(job.finished_ms),
        "expires": _moment(job.expires_ms),
        "kept_until": _moment(None if job.finished_ms is None else job.finished_ms + job.ttl_ms),
    }
    if failures:
        found["errors"] = [
            {"index": each.position, "n": each.n, "code": each.code, "message": each.message} for each in failures
        ]
    return found


def as_table(queue: str, jobs: Sequence[Job], now_ms: float) -> Group:
    """Returns the last jobs of a queue, newest first, as people read them: ids are whole in 80 columns."""
    head = Text(f"Queue {queue}: {len(jobs):,} job{'s' if len(jobs) != 1 else ''}", style="bold")
    if not jobs:
        return Group(head)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("id", "status"):
        table.add_column(heading, no_wrap=True)
    for heading in ("done", "failed", "of", "age"):
        table.add_column(heading, justify="right")
    for each in jobs:
        age = as_time(max(0.0, now_ms - each.created_ms) / 1000)
        numbers = (f"{each.done:,}", f"{each.failed:,}", f"{each.n:,}", age)
        table.add_row(*map(Text, (f"{queue}.{each.job_id}", each.status, *numbers)))
    return Group(head, table)


def as_text(queue: str, job: Job, failures: Sequence[Failure]) -> Group:
    """Returns a job whole, with the first of the inputs that failed."""
    facts = as_dict(queue, job) | {"revisions": ", ".join(job.revisions)}
    lines = [
        Text.assemble((f"  {name.replace('_', ' '):<10}  ", "bold"), "–" if value in (None, "") else str(value))
        for name, value in facts.items()
    ]
    for each in failures:
        where = str(each.position) if each.n == 1 else f"{each.position}–{each.position + each.n - 1}"
        lines.append(Text.assemble((f"  input {where:<8}", "bold"), f"{each.code}: {each.message}"))
    if job.failed > sum(each.n for each in failures):
        lines.append(Text(f"  and more: {job.failed:,} failed", style="dim"))
    return Group(*lines)


def _moment(ms: int | None) -> str | None:
    return None if ms is None else moment(ms)
