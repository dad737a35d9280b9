"""`redbatch usage`: its options and help text."""

from __future__ import annotations

from typing import Annotated

import typer

from redbatch.options import Json, RedisUrl, UpPort
from shared.usage_counts import DEFAULT_GROUPS


def usage(  # noqa: PLR0913, PLR0917 - one for each option
    redis_url: RedisUrl = None,
    up: UpPort = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="First hour, in UTC. Default: 24 hours before --to."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End of the last hour. Default: the present hour.")
    ] = None,
    group: Annotated[
        str, typer.Option(help="Sums by hour, day, tenant, model or operation; several separated by commas.")
    ] = DEFAULT_GROUPS,
    in_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a line of headings.")] = False,
    in_json: Json = False,
) -> None:
    """Show what tenants have used: requests, inputs, tokens and time of the device.

    Times are whole hours in UTC, and are kept for 40 days. The present hour
    lacks the last seconds. A gateway has the same at GET /usage.

    redbatch usage --group tenant

    redbatch usage --from 2026-11-01 --to 2026-12-01 --group day,tenant --csv
    """
    from redbatch.queue_target import QueueTarget
    from redbatch.usage.command import UsageQuery, show_usage
    from redbatch.usage.view import as_csv, as_json

    if in_csv and in_json:
        raise typer.BadParameter("--csv and --json exclude each other")
    render = as_csv if in_csv else as_json if in_json else None
    raise typer.Exit(show_usage(QueueTarget(redis_url, up=up), UsageQuery(since, until, group), render))
