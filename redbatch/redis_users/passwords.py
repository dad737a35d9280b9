"""New passwords for the users of Redis, beside those that stay valid for a while."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from redbatch.redis_users.acl import acl_file, newest_digests, other_users
from redbatch.redis_users.rules import USERS


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where clients find it. With `tls` they speak TLS to it."""

    host: str
    port: int
    tls: bool

    def url(self, user: str, password: str) -> str:
        """Returns the URL for a user. Passwords are hex: nothing in them has to be quoted."""
        return f"redis{'s' * self.tls}://{user}:{password}@{self.host}:{self.port}/0"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What has to be handed out: the file of users, and each one's password."""

    users: str
    passwords: Mapping[str, str]


def new_credentials(kept: str | None = None) -> Credentials:
    """Makes passwords. The newest ones in `kept`, a file of users, stay valid beside them. Raises NoUsers."""
    passwords = {user.name: secrets.token_hex(32) for user in USERS if user.password}
    old = {} if kept is None else newest_digests(kept)
    digests = {
        name: [hashlib.sha256(password.encode()).hexdigest(), *([old[name]] if name in old else [])]
        for name, password in passwords.items()
    }
    return Credentials(acl_file(digests, other_users(kept or "")), passwords)


def drop_old_passwords(kept: str) -> str:
    """Returns a file of users with the newest passwords of another one alone. Raises NoUsers."""
    return acl_file({name: [digest] for name, digest in newest_digests(kept).items()}, other_users(kept))
