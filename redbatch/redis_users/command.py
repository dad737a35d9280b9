"""What `redbatch k8s secrets` and `redbatch swarm secrets` do. Each returns the exit code: 0, or 2 for misuse."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import typer

from shared.process.settings import EXIT_CONFIGURATION, complain
from redbatch.redis_users import k8s, swarm
from redbatch.redis_users.acl import NoUsers
from redbatch.redis_users.passwords import Redis, new_access, without_old

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUFFIX = re.compile(r"[A-Za-z0-9._-]{0,32}")


def k8s_secrets(namespace: str, redis: Redis, keep: Path | None, drop_old: Path | None) -> int:
    """Prints manifests: of all secrets, or of Redis' users without their old passwords."""
    if keep is not None and drop_old is not None:
        return _misused("--keep and --drop-old exclude each other")
    if not _NAMESPACE.fullmatch(namespace):
        return _misused(f"--namespace {namespace}: write up to 63 small letters, digits and dashes")
    try:
        if drop_old is not None:
            text = k8s.users_secret(namespace, without_old(_read(drop_old)))
        else:
            text = k8s.manifests(namespace, new_access(_read(keep) if keep else None), redis)
    except NoUsers as error:
        return _misused(f"{keep or drop_old}: {error}")
    return _print(text, "pipe them: | kubectl apply --server-side -f -", others_end=keep is None and drop_old is None)


def swarm_secrets(suffix: str, keep: Path | None) -> int:
    """Prints a shell script, for the Redis of swarm/stack.yml."""
    if not _SUFFIX.fullmatch(suffix):
        return _misused(f"--suffix {suffix}: write up to 32 letters, digits, dots, dashes and underscores")
    try:
        text = swarm.script(suffix, new_access(_read(keep) if keep else None), Redis("redis", 6379, tls=False))
    except NoUsers as error:
        return _misused(f"{keep}: {error}")
    return _print(text, "write them to a file, as --help says: docker shows no secret again", others_end=False)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise NoUsers(f"it cannot be read ({type(error).__name__})") from None


def _print(text: str, advice: str, *, others_end: bool) -> int:
    """Prints what was made, and says what to know of it. `others_end`: applied, it ends the passwords from before."""
    typer.echo(text, nl=False)
    if sys.stdout.isatty():
        complain(f"these are passwords, and they are on your screen now: {advice}")
    elif others_end:
        complain("these passwords are new: a cluster that runs already has others, and wants them changed by --keep")
    return 0


def _misused(message: str) -> int:
    complain(message)
    return EXIT_CONFIGURATION
