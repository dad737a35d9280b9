"""The file of users that Redis reads (`aclfile`): what it says, and which passwords one has that is there already."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from redbatch.redis_users.rules import USERS, User

_DIGEST = re.compile(r"#([0-9a-f]{64})")

Digests = Mapping[str, Sequence[str]]
"""SHA-256 of the passwords of each user, as hex, the newest first."""


DEFAULT = "user default reset off ~* &* +@all"
"""Nobody gets in by it: it has no password, and is off. But Redis acts for it when it reads its append-only file, where
what a script wrote is a transaction: without these rights it would leave all of that out, and say nothing (7.0)."""


class NoUsersError(ValueError):
    """A text is no file of these users; the message says why."""


def acl_file(digests: Digests, others: Sequence[str] = ()) -> str:
    """Returns the text of the file. `others` are lines of further users, which stay as they are.

    A user may have several passwords. Redis takes no comments in it.
    """
    lines = [DEFAULT, *(rule(user, digests.get(user.name, ())) for user in USERS), *others]
    return "\n".join(lines) + "\n"


def rule(user: User, digests: Sequence[str]) -> str:
    """Returns the line of one user."""
    words = ["user", user.name, "reset", "on"]
    words += [f"#{each}" for each in digests] if user.password else ["nopass"]
    words += [f"~{pattern}" for pattern in user.writes]
    words += [f"%R~{pattern}" for pattern in user.reads if pattern not in user.writes]
    return " ".join([*words, "resetchannels", "-@all", *user.commands])


def newest_digests(text: str) -> dict[str, str]:
    """Returns the newest password of each of our users, by its SHA-256. Raises NoUsersError where one has none."""
    found = {}
    lines = {line.split()[1]: line for line in text.splitlines() if re.match(r"user \S", line)}
    for user in USERS:
        if user.password:
            digest = _DIGEST.search(lines.get(user.name, ""))
            if digest is None:
                raise NoUsersError(f"it has no user {user.name} with a password")
            found[user.name] = digest[1]
    return found


def other_users(text: str) -> list[str]:
    """Returns the lines of users that are not ours."""
    ours = {"default", *(user.name for user in USERS)}
    return [line for line in text.splitlines() if re.match(r"user \S", line) and line.split()[1] not in ours]
