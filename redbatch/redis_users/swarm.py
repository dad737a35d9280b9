"""Shell script for a manager node of a Swarm: one command for each secret of swarm/stack.yml."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from redbatch.redis_users.passwords import Credentials, RedisAddress

_END = "END_OF_SECRET"


def script(suffix: str, credentials: Credentials, addresses: Sequence[RedisAddress]) -> str:
    """Returns the commands. A secret of a Swarm never changes: new secrets have a new suffix.

    The operator stores the URLs of ops and admin, which are no services: docker never shows a secret again. A URL of
    several addresses is a list, separated by commas.
    """
    urls = {
        name: ",".join(address.url(name, password) for address in addresses)
        for name, password in credentials.passwords.items()
    }
    lines = ["set -e"]
    lines += [_create(f"redbatch_redis_acl{suffix}", credentials.users)]
    lines += [_create(f"redbatch_{name}_redis_url{suffix}", f"{urls[name]}\n") for name in ("gateway", "worker")]
    lines += ["# For you, to store elsewhere:", *(f"# {urls[name]}" for name in ("ops", "admin"))]
    return "\n".join(lines) + "\n"


def _create(name: str, text: str) -> str:
    return f"docker secret create {shlex.quote(name)} - <<'{_END}'\n{text}{_END}"
