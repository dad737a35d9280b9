"""The commands below `redbatch k8s` and `redbatch swarm`: what they take and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

k8s_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Make what a Kubernetes cluster needs before the manifests in k8s/.

    redbatch k8s secrets | kubectl apply --server-side -f -
    """,
)
swarm_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Make what a Docker Swarm needs before swarm/stack.yml.

    (umask 077 && redbatch swarm secrets > secrets.sh) && sh secrets.sh
    """,
)

Host = Annotated[str, typer.Option(help="Where clients find Redis.")]
Port = Annotated[int, typer.Option(min=1, max=65_535, help="On which port.")]
Tls = Annotated[bool, typer.Option("--tls", help="Clients speak TLS to it: their URLs are rediss://.")]
Keep = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The users.acl that Redis has now: its newest passwords stay valid too."),
]


@k8s_app.callback()
def k8s() -> None:
    """Holds the commands below it: with one alone typer would make it the command."""


@swarm_app.callback()
def swarm() -> None:
    """The same."""


@k8s_app.command("secrets")
def k8s_secrets(
    namespace: Annotated[str, typer.Option(help="The namespace, which is made too.")] = "redbatch",
    host: Host = "redis",
    port: Port = 6379,
    tls: Tls = False,
    keep: Keep = None,
    drop_old: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Make no new passwords, but print the users of this users.acl with their newest alone."
        ),
    ] = None,
) -> None:
    """Print the namespace and new secrets: users of Redis (7 or newer) with minimal rights, and how each gets in.

    redbatch k8s secrets | kubectl apply --server-side -f -

    Each run makes new passwords. To change them while all goes on: docs/redis.md.
    """
    from redbatch.redis_users.command import print_k8s_secrets as run
    from redbatch.redis_users.passwords import RedisAddress

    raise typer.Exit(run(namespace, RedisAddress(host, port, tls), keep, drop_old))


@swarm_app.command("secrets")
def swarm_secrets(
    suffix: Annotated[str, typer.Option(help="Behind the name of each secret: that of $REDBATCH_SECRETS.")] = "",
    keep: Keep = None,
) -> None:
    """Print a shell script that makes new secrets: users of Redis (7 or newer) with minimal rights, and their URLs.

    The URLs of ops and admin stand in it as comments: keep them.

    (umask 077 && redbatch swarm secrets > secrets.sh) && sh secrets.sh

    Each run makes new passwords. To change them while all goes on: docs/redis.md.
    """
    from redbatch.redis_users.command import print_swarm_secrets as run

    raise typer.Exit(run(suffix, keep))
