"""`redbatch leases`: its options and help text."""

from __future__ import annotations

from typing import Annotated

import typer

from redbatch.options import Json, RedisUrl, UpPort, Watch


def leases(
    redis_url: RedisUrl = None,
    pool: Annotated[str | None, typer.Option(help="Show this pool of GPUs only.", show_default="all")] = None,
    up: UpPort = None,
    in_json: Json = False,
    watch: Watch = False,
) -> None:
    """Show the leases of shared GPUs.

    The slots of each pool that live workers use (--gpu-lease), the worker that
    holds each of them, under which fence and for how long unless it renews the
    lease, and the workers that wait for one.

    redbatch leases --watch

    redbatch leases --redis-url redis://redis:6379/0 --pool node-1 --json
    """
    from redbatch.leases.command import show_leases
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(show_leases(QueueTarget(redis_url, up=up), pool, in_json=in_json, watch=watch))
