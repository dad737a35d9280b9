"""The users of Redis that the suite runs under: each process as its own, and who looks on as one that may do all.

With REDBATCH_TEST_USERS=1 (`make test-redis7`) the servers of the suite have the users that `redbatch k8s secrets`
makes. Their URLs are the observer's; whoever plays a part takes its user by `as_user`. Without, all are nobody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from redbatch.redis_users.acl import acl_file
from redbatch.redis_users.rules import USERS

USERS_VARIABLE = "REDBATCH_TEST_USERS"
OBSERVER, RESULTS, REPLICA = "observer", "results", "replica"
PAGE = Path(__file__).parents[1] / "docs" / "redis.md"
ROLES = {"api": "gateway", "gpuworker": "worker"}
"""Who the programs of the cluster are, by their module."""


def users_are_on() -> bool:
    """Whether the suite runs under users."""
    return os.environ.get(USERS_VARIABLE) == "1"


def password_of(user: str) -> str:
    """Returns the password of a user."""
    return f"password-of-{user}"


def suite_acl() -> str:
    """Returns the file of users, with those of docs/redis.md that one adds oneself, and one for who looks on."""
    names = [*(user.name for user in USERS), RESULTS, REPLICA, OBSERVER]
    digests = {name: sha256(password_of(name).encode()).hexdigest() for name in names}
    others = [_of_the_page(name).replace("<sha256>", digests[name]) for name in (RESULTS, REPLICA)]
    others.append(f"user {OBSERVER} on #{digests[OBSERVER]} ~* &* +@all")
    return acl_file({name: [digest] for name, digest in digests.items()}, others)


def _of_the_page(name: str) -> str:
    (line,) = re.findall(rf"`(user {name} on #<sha256> .*)`", PAGE.read_text(encoding="utf-8"))
    return str(line)


def as_user(url: str, user: str) -> str:
    """Returns a server's URL for a user; as it is, where the server has none."""
    where = urlsplit(url)
    if where.username is None:
        return url
    return where._replace(netloc=f"{user}:{password_of(user)}@{where.hostname}:{where.port}").geturl()


def with_role_user(module: str, env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a program, with Redis' URL for the user that it is."""
    role, url = ROLES.get(env.get("SHIFTED", module)), env.get("REDBATCH_REDIS_URL", "")
    if role is None or urlsplit(url).username != OBSERVER:
        return dict(env)
    return {**env, "REDBATCH_REDIS_URL": as_user(url, role)}
