"""Jobs as text and table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from rich.console import Group
from rich.text import Text

from redbatch.tables import labelled_line, plain_table
from redbatch.times import AGE_WIDTH, format_age
from shared.job_view import job_as_dict
from shared.jobs import Job, Status
from shared.messages import PREDICT, Failure
from shared.process.log_text import printable_line

MAX_TENANTS = 3


def as_table(
    place: str,
    jobs: Sequence[tuple[str, Job]],
    num_left_out: tuple[int, int],
    now_ms: float,
    result_bytes: Counter[str],
) -> Group:
    """Returns a table of jobs and their queues, in this order, in a place that has more: older ones, and deleted ones.

    Results of the place, kept and expected, have these bytes by tenant. Ids are complete in 80 columns.
    """
    total = len(jobs) + num_left_out[0]
    head = Text(f"{printable_line(place)}: {total:,} job{'s' if total != 1 else ''}", style="bold")
    hint = [Text(f"  {each}", style="dim") for each in hints(len(jobs), num_left_out)]
    if not jobs:
        return Group(head, *hint)
    table = plain_table()
    # The layout must not change while jobs progress: the longest values that a job may have set the widths.
    table.add_columns("id", no_wrap=True)
    table.add_columns("status", no_wrap=True, min_width=max(map(len, get_args(Status))))
    count_width = max(len(f"{job.n:,}") for _, job in jobs)
    table.add_columns("done", "failed", "of", justify="right", no_wrap=True, min_width=count_width)
    table.add_columns("age", justify="right", no_wrap=True, min_width=AGE_WIDTH)
    for queue, job in jobs:
        age = format_age(max(0.0, now_ms - job.created_ms) / 1000)
        numbers = (f"{job.done:,}", f"{job.failed:,}", f"{job.n:,}", age)
        table.add_row(f"{queue}.{job.job_id}", job.status, *numbers)
    return Group(head, table, *hint, *_result_lines(result_bytes))


def hints(num_listed: int, num_left_out: tuple[int, int]) -> list[str]:
    """Returns how many jobs a list leaves out, and how to see them: older ones, and deleted ones."""
    num_older, num_deleted = num_left_out
    older = [f"and {num_older:,} older: --most {num_listed + num_older} shows all"] if num_older else []
    return [*older, f"and {num_deleted:,} deleted: --all shows them"] if num_deleted else older


def _result_lines(result_bytes: Counter[str]) -> Iterator[Text]:
    """Yields what the results of all jobs take of Redis, and which tenants have the most of it."""
    if result_bytes:
        line = f"  Results of jobs, with those to come, take {_format_size(result_bytes.total())} in Redis"
        if set(result_bytes) != {""}:
            most = result_bytes.most_common(MAX_TENANTS)
            shares = [
                f"{_format_size(size)} {f'of {tenant}' if tenant else 'without a tenant'}" for tenant, size in most
            ]
            line += f": {', '.join(shares)}"
        yield Text(printable_line(line + (", …" if len(result_bytes) > MAX_TENANTS else ".")), "dim")


def _format_size(num_bytes: int) -> str:
    """Returns a number of bytes in kB or MB; never 0 for some."""
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:,.1f} kB"  # noqa: PLR2004


def as_text(queue: str, job: Job, failures: Sequence[Failure]) -> Group:
    """Returns one job in full, with the first failed inputs."""
    facts = job_as_dict(queue, job) | {"revisions": ", ".join(job.revisions)}
    if job.op == PREDICT:  # nothing is cut for a function
        del facts["truncated_inputs"]
    rows = [(name.replace("_", " "), "–" if value in (None, "") else str(value)) for name, value in facts.items()]
    for each in failures:
        positions = str(each.position) if each.n == 1 else f"{each.position}–{each.position + each.n - 1}"
        rows.append((f"input {positions}", f"{each.code}: {each.message}"))
    width = max(len(label) for label, _ in rows)
    lines = [labelled_line(label, value, width) for label, value in rows]
    if job.failed > sum(each.n for each in failures):
        lines.append(Text(f"  and more: {job.failed:,} inputs failed in total", style="dim"))
    return Group(*lines)
