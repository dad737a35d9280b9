"""Implementation of `redbatch k8s secrets` and `redbatch swarm secrets`.

Both return the exit code: 0, or 2 after misuse.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from redbatch.exit_codes import report_misuse
from redbatch.redis_users import k8s, swarm
from redbatch.redis_users.acl import NoUsersError
from redbatch.redis_users.passwords import RedisAddress, drop_old_passwords, new_credentials
from shared.process.settings import describe_file_error, print_error

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
STDIN = Path("-")
_SUFFIX = re.compile(r"[A-Za-z0-9._-]{0,32}")


def print_k8s_secrets(namespace: str, redis: RedisAddress, keep: Path | None, drop_old: Path | None) -> int:
    """Prints manifests: of all secrets or, for `drop_old`, of the Redis users without their old passwords."""
    if keep is not None and drop_old is not None:
        return report_misuse("--keep and --drop-old exclude each other")
    if not _NAMESPACE.fullmatch(namespace):
        return report_misuse(f"--namespace {namespace}: use at most 63 lower-case letters, digits and dashes")
    if not redis.master and not all(map(_HOST.fullmatch, redis.hosts)):
        return report_misuse(f"--host {redis.host}: use the name or the IP address of a host")
    try:
        if drop_old is not None:
            text = k8s.users_secret(namespace, drop_old_passwords(_read(drop_old), redis.users))
        else:
            text = k8s.manifests(namespace, new_credentials(_read(keep) if keep else None, redis.users), redis)
    except NoUsersError as error:
        return report_misuse(f"--drop-old {drop_old}: {error}" if drop_old else f"--keep {keep}: {error}")
    return _print(text, "pipe them: | kubectl apply --server-side -f -", revokes_old=keep is None and drop_old is None)


def print_swarm_secrets(suffix: str, hosts: Sequence[str], keep: Path | None) -> int:
    """Prints a shell script, for the Redis of swarm/stack.yml: one, or several with a shard of each queue."""
    for host in hosts:
        if not _HOST.fullmatch(host):
            return report_misuse(f"--host {host}: use the name or the IP address of a host")
    if len(set(hosts)) < len(hosts):
        return report_misuse(f"--host {' --host '.join(hosts)}: name each host once")
    if not _SUFFIX.fullmatch(suffix):
        return report_misuse(f"--suffix {suffix}: use at most 32 letters, digits, dots, dashes and underscores")
    try:
        addresses = [RedisAddress(host, 6379, tls=False) for host in hosts]
        text = swarm.script(suffix, new_credentials(_read(keep) if keep else None), addresses)
    except NoUsersError as error:
        return report_misuse(f"--keep {keep}: {error}")
    return _print(text, "write them to a file, as --help says: docker never shows a secret again", revokes_old=False)


def _read(path: Path) -> str:
    try:
        if path == STDIN:
            return sys.stdin.read()
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise NoUsersError(f"it cannot be read ({describe_file_error(error)})") from None


def _print(text: str, advice: str, *, revokes_old: bool) -> int:
    """Prints the secrets, and a warning. `revokes_old`: once applied, they make the previous passwords invalid."""
    typer.echo(text, nl=False)
    if sys.stdout.isatty():
        print_error(f"these are passwords, and they are now visible on your screen: {advice}")
    elif revokes_old:
        print_error("these passwords are new: for a running cluster, which has others, use --keep")
    return 0
