"""Jobs as a table, and one job as text."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.console import Console

from redbatch.jobs.view import as_table, as_text
from shared.jobs import Job, Status
from shared.keys import BULK
from shared.messages import EMBED, PREDICT, Failure


@pytest.mark.parametrize(("queue", "lines_per_job"), [("minilm", 1), ("sentence-transformers-all-mpnet-base-v2", 2)])
def test_a_job_takes_one_or_two_lines(queue: str, lines_per_job: int) -> None:
    """At 80 columns the id of a job is whole: one line holds all of it or, after a long name of a queue, two do."""
    jobs = [(queue, Job(f"{n:032x}", "running", "", 1, 100_000, 40_000, 3, 32, 1_000, 2_000, 3)) for n in range(3)]
    output = io.StringIO()
    Console(file=output, width=80).print(as_table("All queues", jobs, (0, 0), 600_000.0, Counter()))
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    ids = [number for number, line in enumerate(lines) if f"{queue}.0000" in line]
    assert [b - a for a, b in zip(ids, [*ids[1:], len(lines)], strict=True)] == [lines_per_job] * 3
    for first in ids:
        row = " ".join(lines[first : first + lines_per_job])
        assert all(each in row for each in ("running", "40,000", "100,000", " 9 min"))


@pytest.mark.parametrize("width", [80, 81, 82, 84, 88, 100])
@pytest.mark.parametrize("queue", ["minilm", "squares-squares", "sentence-transformers-all-mpnet-base-v2"])
def test_the_layout_stays_while_jobs_progress(queue: str, width: int) -> None:
    """Neither status nor age nor the counts of a job that runs turn rows into blocks of lines, or back."""

    def layout(status: Status, done: int, failed: int, now_ms: float) -> tuple[list[int], int]:
        output = io.StringIO()
        job = Job("0" * 32, status, "", 1, 40, done, failed, 32, 1_000, 2_000, 3)
        Console(file=output, width=width).print(as_table("All queues", [(queue, job)], (0, 0), now_ms, Counter()))
        lines = output.getvalue().splitlines()
        return [lines[1].find(each) for each in ("done", "failed", "of", "age")], len(lines)

    ages_ms = (1_000, 50_000, 3_590_000, 9e7, 8e8)
    states: list[tuple[Status, int, int]] = [("queued", 0, 0), ("running", 9, 2), ("done", 40, 40), ("cancelled", 8, 0)]
    assert len({str(layout(*state, now_ms)) for now_ms in ages_ms for state in states}) == 1


@pytest.mark.parametrize(("op", "shown"), [(EMBED, True), (PREDICT, False)])
def test_truncation_is_shown_of_texts_alone(op: str, shown: bool) -> None:
    """Inputs of a function are never cut."""
    output = io.StringIO()
    Console(file=output).print(as_text("q", Job("0" * 32, "done", "", BULK, 3, 3, 0, 1, 0, 0, 0, op=op), []))
    assert ("truncated inputs" in output.getvalue()) == shown


def test_all_values_of_a_job_are_in_one_column() -> None:
    """The longest label sets the column, whether it is a fact or the positions of failed inputs."""
    job = Job("0" * 32, "done", "", BULK, 200_000, 0, 20, 1, 0, 0, 0)
    for failures in ([], [Failure("", 100_000, 20, "oom", "Too large.")]):
        output = io.StringIO()
        Console(file=output, width=120).print(as_text("q", job, failures))
        lines = [line.rstrip() for line in output.getvalue().splitlines() if "inputs failed in total" not in line]
        assert len({line.rindex("  ") for line in lines}) == 1, lines


@pytest.mark.parametrize(
    ("result_bytes", "expected"),
    [
        ({"": 3_210}, "Results of jobs, with those to come, take 3.2 kB in Redis."),
        (
            {"web": 5_250_000, "": 120},
            "Results of jobs, with those to come, take 5.3 MB in Redis: 5.2 MB of web, 0.1 kB without a tenant.",
        ),
        (
            {"a": 4e6, "b": 3e6, "c": 2e6, "d": 1e6},
            "Results of jobs, with those to come, take 10.0 MB in Redis: 4.0 MB of a, 3.0 MB of b, 2.0 MB of c, …",
        ),
    ],
)
def test_the_memory_of_results_is_a_sentence(result_bytes: dict[str, float], expected: str) -> None:
    """It names tenants only if requests name any, and no size is 0."""
    output = io.StringIO()
    jobs = [("q", Job("0" * 32, "done", "", BULK, 1, 1, 0, 1, 0, 0, 0))]
    Console(file=output, width=150).print(
        as_table(
            "All queues", jobs, (0, 0), 0.0, Counter({tenant: round(size) for tenant, size in result_bytes.items()})
        )
    )
    assert output.getvalue().splitlines()[-1].strip() == expected
