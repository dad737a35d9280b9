"""The subcommands of `redbatch k8s` and `redbatch swarm`: their options and help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redbatch.exit_codes import report_misuse
from redbatch.options import command_group

k8s_app = command_group(
    """Create the secrets that a Kubernetes cluster needs before the manifests in k8s/.

    redbatch k8s secrets | kubectl apply --server-side -f -
    """
)
swarm_app = command_group(
    """Create the secrets that a Docker Swarm needs before swarm/stack.yml.

    (umask 077 && redbatch swarm secrets > secrets.sh) && sh secrets.sh
    """
)

Host = Annotated[str, typer.Option(help="Host name of Redis, for its clients.")]
Port = Annotated[int, typer.Option(min=1, max=65_535, help="Port of Redis.")]
Tls = Annotated[bool, typer.Option("--tls", help="Clients connect with TLS: their URLs are rediss://.")]
Sentinel = Annotated[
    bool,
    typer.Option("--sentinel", help="For k8s/components/redis-sentinel: users of replicas and sentinels, and URLs."),
]
Cluster = Annotated[
    bool,
    typer.Option(
        "--cluster",
        help="For k8s/components/redis-cluster: URLs of a Redis Cluster, with its servers in --host: HOST,HOST.",
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The current users.acl of Redis, - for stdin: its newest passwords stay valid, too."
    ),
]


@k8s_app.callback()
def k8s() -> None:
    """Makes this a group: typer would turn a single subcommand into the command itself."""


@swarm_app.callback()
def swarm() -> None:
    """Makes this a group, as `k8s` does."""


@k8s_app.command("secrets")
def k8s_secrets(  # noqa: PLR0913, PLR0917 - the options of the command
    namespace: Annotated[str, typer.Option(help="The namespace; its manifest is printed, too.")] = "redbatch",
    host: Host = "redis",
    port: Port = 6379,
    tls: Tls = False,
    sentinel: Sentinel = False,
    cluster: Cluster = False,
    keep: Keep = None,
    drop_old: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Create no passwords: print the users of this users.acl with only their newest password.",
        ),
    ] = None,
) -> None:
    """Print the namespace and new secrets: Redis users (Redis 7 or newer) with minimal rights, and their credentials.

    redbatch k8s secrets | kubectl apply --server-side -f -

    Each run creates new passwords. To change passwords without an interruption,
    see docs/redis.md.
    """
    from redbatch.redis_users.command import print_k8s_secrets
    from redbatch.redis_users.passwords import RedisAddress, pods_with_sentinels

    if sentinel and cluster:
        raise typer.Exit(report_misuse("--cluster and --sentinel exclude each other"))
    if sentinel and (tls or (host, port) != ("redis", 6379)):
        raise typer.Exit(report_misuse("--sentinel excludes --host, --port and --tls"))
    redis = pods_with_sentinels(namespace) if sentinel else RedisAddress(host, port, tls, is_cluster=cluster)
    raise typer.Exit(print_k8s_secrets(namespace, redis, keep, drop_old))


@swarm_app.command("secrets")
def swarm_secrets(
    suffix: Annotated[
        str, typer.Option(help="Suffix of the name of each secret: the value of $REDBATCH_SECRETS.")
    ] = "",
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Service or host of Redis (redis). With several, the URLs are those of REDBATCH_REDIS_SHARDS.",
            show_default=False,
        ),
    ] = None,
    keep: Keep = None,
) -> None:
    """Print a shell script that creates new secrets: Redis users (Redis 7 or newer) with minimal rights, and URLs.

    Comments of the script contain the URLs of ops and admin: store them.

    (umask 077 && redbatch swarm secrets > secrets.sh) && sh secrets.sh

    Each run creates new passwords. To change passwords without an interruption,
    see docs/redis.md.
    """
    from redbatch.redis_users.command import print_swarm_secrets

    raise typer.Exit(print_swarm_secrets(suffix, host or ["redis"], keep))
