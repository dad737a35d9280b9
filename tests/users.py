"""The Redis users of the test suite: one for each role of a process, and an observer that may do everything.

With REDBATCH_TEST_USERS=1 (`make test-redis7`) the suite's servers have the users that `redbatch k8s secrets` creates.
The servers' URLs are the observer's; a test that acts in a role gets that user's URL from `as_user`. Without the
variable there are no users.
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
OBSERVER, RESULTS, REPLICA, SENTINEL, HAPROXY = "observer", "results", "replica", "sentinel", "haproxy"
DOCUMENTED = (RESULTS, REPLICA, SENTINEL, HAPROXY)
"""Users of which docs/redis.md has the line."""

PAGE = Path(__file__).parents[1] / "docs" / "redis.md"
ROLES = {"api": "gateway", "gpuworker": "worker"}
"""The users of the programs of the cluster, by module."""


def users_are_on() -> bool:
    """Whether the suite runs with users."""
    return os.environ.get(USERS_VARIABLE) == "1"


def password_of(user: str) -> str:
    """Returns the password of a user."""
    return f"password-of-{user}"


def suite_acl() -> str:
    """Returns the ACL file: Redbatch's users, the users that docs/redis.md says to add, and the observer."""
    names = [*(user.name for user in USERS), *DOCUMENTED, OBSERVER]
    digests = {name: sha256(password_of(name).encode()).hexdigest() for name in names}
    others = [documented_user(name) for name in DOCUMENTED]
    others.append(f"user {OBSERVER} on #{digests[OBSERVER]} ~* &* +@all")
    return acl_file({name: [digest] for name, digest in digests.items()}, others)


def documented_user(name: str) -> str:
    """Returns the line of a user that docs/redis.md says to add, with the digest of its password."""
    (line,) = re.findall(rf"`(user {name} on #<sha256> .*)`", PAGE.read_text(encoding="utf-8"))
    return str(line).replace("<sha256>", sha256(password_of(name).encode()).hexdigest())


def as_user(url: str, user: str) -> str:
    """Returns a server's URL for a user, or the URL unchanged if the server has no users."""
    parts = urlsplit(url)
    if parts.username is None:
        return url
    hosts = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{user}:{password_of(user)}@{hosts}").geturl()


def with_role_user(module: str, env: Mapping[str, str]) -> dict[str, str]:
    """Returns a program's environment with the URLs of Redis for the user of its role."""
    role, named = ROLES.get(env.get("SHIFTED_MODULE", module)), dict(env)
    if role is None:
        return named
    for name in {"REDBATCH_REDIS_URL", "REDBATCH_REDIS_SHARDS"} & env.keys():
        urls = env[name].split(",")
        named[name] = ",".join(as_user(each, role) if urlsplit(each).username == OBSERVER else each for each in urls)
    return named
