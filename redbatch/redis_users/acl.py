"""The ACL file of Redis (`aclfile`): writes its lines, and reads the users and passwords of an existing one. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from redbatch.redis_users.rules import PEERS, USERS, User

_DIGEST = re.compile(r"#([0-9a-f]{64})")

Digests = Mapping[str, Sequence[str]]
"""SHA-256 of the passwords of each user, as hex, newest first."""

DEFAULT = "user default reset off ~* &* +@all"
"""No client can log in as this user: it is off and has no password. But Redis replays its append-only file as this
user, and the writes of a script are a transaction there: without these rights, Redis (at least 7.0 and 7.2) would
skip all of them silently."""


class NoUsersError(ValueError):
    """A text is not an ACL file of these users; the message says why."""


def acl_file(digests: Digests, others: Sequence[str] = (), users: Sequence[User] = USERS) -> str:
    """Returns the text of the ACL file of `users`. `others` are lines of further users, copied unchanged.

    A user may have several passwords. Redis allows no comments in the file.
    """
    lines = [DEFAULT, *(acl_line(user, digests.get(user.name, ())) for user in users), *others]
    return "\n".join(lines) + "\n"


def acl_line(user: User, digests: Sequence[str]) -> str:
    """Returns the line of one user."""
    words = ["user", user.name, "reset", "on"]
    words += [f"#{each}" for each in digests] if user.password else ["nopass"]
    words += [f"~{pattern}" for pattern in user.writes]
    words += [f"%R~{pattern}" for pattern in user.reads if pattern not in user.writes]
    words += ["resetchannels", *(f"&{each}" for each in user.channels)]
    return " ".join([*words, "-@all", *user.commands])


def newest_digests(text: str, users: Sequence[User] = USERS) -> dict[str, str]:
    """Returns the SHA-256 of the newest password of each user. Raises NoUsersError if one but a peer has none."""
    digests = {}
    lines = {line.split()[1]: line for line in text.splitlines() if re.match(r"user \S", line)}
    for user in users:
        if user.password:
            digest = _DIGEST.search(lines.get(user.name, ""))
            if digest is None and user in PEERS:  # there were no replicas before
                continue
            if digest is None:
                raise NoUsersError(f"it has no user {user.name} with a password")
            digests[user.name] = digest[1]
    return digests


def other_users(text: str, users: Sequence[User] = USERS) -> list[str]:
    """Returns the lines of users that are not of Redbatch."""
    known = {"default", *(user.name for user in users)}
    return [line for line in text.splitlines() if re.match(r"user \S", line) and line.split()[1] not in known]
