"""Implementation of `redbatch usage`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from redbatch.exit_codes import report_misuse
from redbatch.queue_target import QueueTarget, run_on_shards
from redbatch.terminal import make_console, print_line
from redbatch.usage.view import as_text
from shared.keys import Keys
from shared.redis_url import one_per_keyspace
from shared.shard_connections import ShardConnection
from shared.usage import KEPT_HOURS, read_hours
from shared.usage_counts import UsageHour, UsageReport, parse_groups
from shared.usage_hours import name_of_day, name_of_hour, parse_range


class UsageQuery(NamedTuple):
    """The hours and the groups of a report, as on the command line."""

    since: str | None
    until: str | None
    group: str


def show_usage(target: QueueTarget, query: UsageQuery, render: Callable[[UsageReport], str] | None) -> int:
    """Prints a report, as a table unless `render` makes another text of it.

    It is the sum over all Redis. Returns the exit code: 1 if it cannot be read, 2 after misuse.
    """
    try:
        hours = parse_range(query.since, query.until, time.time(), KEPT_HOURS)
        report = UsageReport(parse_groups(query.group))
    except ValueError as error:
        return report_misuse(f"--{error}")

    async def show(shards: Sequence[ShardConnection], _: Keys) -> int:
        async for hour, rows in read_hours([each.connection for each in shards], range(*hours)):
            report.add(UsageHour(name_of_hour(hour), name_of_day(hour), rows))
        if render is None:
            make_console().print(as_text(report, hours))
        elif text := render(report):
            print_line(text)
        return 0

    return run_on_shards(target, "usage", show, choose=lambda urls: one_per_keyspace(urls, urls))
