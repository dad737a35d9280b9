"""A fault under load, and the table of what was seen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.chaos.history import Call, judge
from tests.engine.load import TIMEOUT_S, Job, Service, load

JOB_INPUTS = 300


@dataclass
class Table:
    """What was seen, a row for each scene."""

    rows: list[str] = field(default_factory=list)

    def add(self, name: str, calls: list[Call], job: str, seconds: float) -> None:
        """Adds a row."""
        verdict = judge(calls)
        self.rows.append(
            f"| {name} | {verdict.calls:,} | {verdict.lost} | {verdict.slowest_s:.1f} s | {job} | {seconds:.0f} s |"
        )

    def __str__(self) -> str:
        head = [
            "| under load of 8 clients and a job | requests | failed | slowest | job | time |",
            "|---|---|---|---|---|---|",
        ]
        return "\n".join([*head, *self.rows])


@contextmanager
def undisturbed(
    service: Service, table: Table, name: str, timeout_s: float = TIMEOUT_S, max_s: float | None = None
) -> Iterator[None]:
    """Runs clients and a job during the block and for a while after it.

    Raises AssertionError: one of them failed, or a request took longer than `max_s`.
    """
    began = time.monotonic()
    with load(service, timeout_s) as calls:
        job = Job(service, JOB_INPUTS)
        yield
        outcome = job.wait()
    table.add(name, calls, outcome, time.monotonic() - began)
    verdict = judge(calls)
    assert verdict.calls > 0
    assert (verdict.lost, outcome) == (0, "ok"), (name, verdict, outcome)
    assert max_s is None or verdict.slowest_s <= max_s, (name, verdict)
