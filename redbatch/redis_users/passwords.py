"""New passwords for the Redis users, in addition to old ones that stay valid for a while."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redbatch.redis_users.acl import acl_file, newest_digests, other_users
from redbatch.redis_users.rules import PEERS, USERS, User


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The address of Redis for its clients; with `tls`, they connect with TLS.

    With sentinels, `host` and `port` are a sentinel's, further ones follow a comma, and `master` is their name for it.
    Of a Redis Cluster, `host` has one or more servers, separated by commas, each of which listens at `port`.
    """

    host: str
    port: int
    tls: bool
    master: str = ""
    is_cluster: bool = False

    @property
    def hosts(self) -> list[str]:
        """The hosts: several only of a Redis Cluster."""
        return self.host.split(",") if self.is_cluster else [self.host]

    def url(self, user: str, password: str) -> str:
        """Returns the URL for a user. Passwords are hex, so they need no quoting."""
        kind, path = ("+sentinel", f"/{self.master}/0") if self.master else ("", "/0")
        if self.is_cluster:
            kind, path = "+cluster", ""
        nodes = ",".join(f"{host}:{self.port}" for host in self.hosts)
        return f"redis{'s' * self.tls}{kind}://{user}:{password}@{nodes}{path}"

    @property
    def users(self) -> tuple[User, ...]:
        """The users of Redis."""
        return (*USERS, *PEERS) if self.master else USERS


def pods_with_sentinels(namespace: str) -> RedisAddress:
    """Returns the address of the pods of k8s/components/redis-sentinel, at the port of their sentinels."""
    *hosts, last = (f"redis-{number}.redis-pods.{namespace}.svc" for number in range(3))
    return RedisAddress("".join(f"{host}:26379," for host in hosts) + last, 26379, tls=False, master="redbatch")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The text of the ACL file (`users`), and the password of each user."""

    users: str
    passwords: Mapping[str, str]


def new_credentials(acl_text: str | None = None, users: Sequence[User] = USERS) -> Credentials:
    """Creates passwords. The newest passwords in `acl_text`, an ACL file, stay valid, too. Raises NoUsersError."""
    passwords = {user.name: secrets.token_hex(32) for user in users if user.password}
    old = {} if acl_text is None else newest_digests(acl_text, users)
    digests = {
        name: [hashlib.sha256(password.encode()).hexdigest(), *([old[name]] if name in old else [])]
        for name, password in passwords.items()
    }
    return Credentials(acl_file(digests, other_users(acl_text or "", users), users), passwords)


def drop_old_passwords(acl_text: str, users: Sequence[User] = USERS) -> str:
    """Returns an ACL file with only the newest passwords of another one. Raises NoUsersError."""
    digests = {name: [digest] for name, digest in newest_digests(acl_text, users).items()}
    return acl_file(digests, other_users(acl_text, users), users)
