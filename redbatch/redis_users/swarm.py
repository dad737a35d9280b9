"""What a shell is given on a manager of a Swarm: a command for each secret of swarm/stack.yml."""

from __future__ import annotations

import shlex

from redbatch.redis_users.passwords import Credentials, RedisAddress

_END = "END_OF_SECRET"


def script(suffix: str, access: Credentials, redis: RedisAddress) -> str:
    """Returns the commands. A secret of a Swarm never changes: new ones have a new suffix.

    The URLs of those whom no service is, an operator keeps: docker shows no secret again.
    """
    urls = {name: redis.url(name, password) for name, password in access.passwords.items()}
    lines = ["set -e"]
    lines += [_create(f"redbatch_redis_acl{suffix}", access.users)]
    lines += [_create(f"redbatch_{name}_redis_url{suffix}", f"{urls[name]}\n") for name in ("gateway", "worker")]
    lines += ["# For you, to keep elsewhere:", *(f"# {urls[name]}" for name in ("ops", "admin"))]
    return "\n".join(lines) + "\n"


def _create(name: str, text: str) -> str:
    return f"docker secret create {shlex.quote(name)} - <<'{_END}'\n{text}{_END}"
