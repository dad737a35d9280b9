"""New passwords for the Redis users, in addition to old ones that stay valid for a while."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from redbatch.redis_users.acl import acl_file, newest_digests, other_users
from redbatch.redis_users.rules import USERS


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The address of Redis for its clients; with `tls`, they connect with TLS."""

    host: str
    port: int
    tls: bool

    def url(self, user: str, password: str) -> str:
        """Returns the URL for a user. Passwords are hex, so they need no quoting."""
        return f"redis{'s' * self.tls}://{user}:{password}@{self.host}:{self.port}/0"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The text of the ACL file (`users`), and the password of each user."""

    users: str
    passwords: Mapping[str, str]


def new_credentials(acl_text: str | None = None) -> Credentials:
    """Creates passwords. The newest passwords in `acl_text`, an ACL file, stay valid, too. Raises NoUsersError."""
    passwords = {user.name: secrets.token_hex(32) for user in USERS if user.password}
    old = {} if acl_text is None else newest_digests(acl_text)
    digests = {
        name: [hashlib.sha256(password.encode()).hexdigest(), *([old[name]] if name in old else [])]
        for name, password in passwords.items()
    }
    return Credentials(acl_file(digests, other_users(acl_text or "")), passwords)


def drop_old_passwords(acl_text: str) -> str:
    """Returns an ACL file with only the newest passwords of another one. Raises NoUsersError."""
    return acl_file({name: [digest] for name, digest in newest_digests(acl_text).items()}, other_users(acl_text))
