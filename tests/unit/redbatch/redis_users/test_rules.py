"""The users of Redis: what they may do is what their side does, and nothing more."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from redbatch.redis_users.acl import NoUsers, acl_file, newest_digests, other_users
from redbatch.redis_users.passwords import new_access, without_old
from redbatch.redis_users.rules import ADMIN, GATEWAY, KEDA, OPS, PROBE, USERS, WORKER, User
from shared import scripts
from shared.scripts import Script

CALL = re.compile(rb"redis\.p?call\(\s*'([A-Z_]+)'(?:, '([A-Z]+)')?")
CONTAINERS = {"xgroup", "xinfo", "client", "memory"}
BLOCKING = "@blocking"

RUN: dict[str, list[Script]] = {
    "gateway": [
        *(scripts.SUBMIT, scripts.CANCEL, scripts.SETTLE, scripts.PULSE, scripts.CACHED, scripts.CACHE_PUT),
        *(scripts.JOB_PUT, scripts.JOB_MAKE, scripts.JOB_FORGET, scripts.JOB_CANCEL),
    ],
    "worker": [
        *(scripts.JOIN, scripts.CLAIM, scripts.COMMIT, scripts.BEGIN, scripts.RENEW, scripts.RECLAIM),
        *(scripts.HAND_BACK, scripts.HEARTBEAT, scripts.ANNOUNCE, scripts.LEAVE, scripts.JOB_FEED, scripts.JOB_SPLIT),
        *(scripts.LEASE_TAKE, scripts.LEASE_RENEW, scripts.LEASE_RELEASE),
    ],
    "admin": [scripts.REQUEUE, scripts.CANCEL, scripts.JOB_CANCEL, scripts.PULSE],
    "ops": [scripts.PULSE],
}
"""Who runs which scripts."""

SENT = {
    "gateway": "client|setname client|info client|kill ping info wait evalsha eval evalsha_ro eval_ro "
    "blpop lpop lrange hget hset hmget hgetall zrevrange",
    "worker": "client|setname client|info client|kill client|unblock evalsha eval xreadgroup blpop",
    "admin": "evalsha eval blpop hset hdel xdel xtrim acl|load acl|log script|kill",
}
"""What each sends outside of scripts. WAITAOF comes with its category, by which Redis 7.0 knows it."""


def commands_in(script: Script) -> set[str]:
    """Returns the commands that a script calls, as ACL rules name them."""
    found = set()
    for name, sub in CALL.findall(script.text):
        command = name.decode().lower()
        found.add(f"{command}|{sub.decode().lower()}" if command in CONTAINERS else command)
    return found


def allowed(user: User) -> set[str]:
    """Returns the commands of a user; those of the category that stands for WAITAOF are left out."""
    return {word[1:] for word in user.commands if word.startswith("+") and word != f"+{BLOCKING}"}


@pytest.mark.parametrize("user", [GATEWAY, WORKER], ids=lambda user: user.name)
def test_a_side_may_do_what_it_does_and_nothing_else(user: User) -> None:
    """Each command of its scripts, and what it sends besides."""
    used = set(SENT[user.name].split()).union(*map(commands_in, RUN[user.name]))
    assert allowed(user) == used


def test_who_looks_after_it_may_do_what_the_command_line_does_and_nothing_else() -> None:
    """Beyond what ops may: `redbatch dead`, `jobs` and `keys` as admin, and new passwords."""
    used = set(SENT["admin"].split()).union(*map(commands_in, RUN["admin"]))
    feeding = {"lpop", "zadd", "zincrby"}  # stand in the text of job_cancel, which does not call them
    assert allowed(ADMIN) - allowed(OPS) == used - feeding - allowed(OPS)
    assert allowed(OPS) < allowed(ADMIN)


def test_each_script_has_somebody_who_runs_it() -> None:
    """A new one has to be given to a user."""
    known = {script.name for each in RUN.values() for script in each}
    assert known == {each.name for each in vars(scripts).values() if isinstance(each, Script)}


def test_only_the_scripts_that_write_nothing_are_called_as_such() -> None:
    """Redis refuses the writes of one that is."""
    assert [each.name for each in vars(scripts).values() if isinstance(each, Script) and each.reads] == ["pulse"]
    assert not commands_in(scripts.PULSE) - allowed(OPS)


def test_what_only_looks_writes_nothing() -> None:
    """Keda and ops have no key to write to, and no command that harms all."""
    for user in (KEDA, OPS):
        assert user.writes == ()
        writing = {"set", "del", "unlink", "xadd", "xdel", "xack", "xtrim", "hset", "hdel", "eval", "evalsha", "lpop"}
        assert not allowed(user) & (writing | {"flushall", "flushdb", "config|set", "keys", "monitor"})
    assert (PROBE.commands, PROBE.writes, PROBE.reads, PROBE.password) == (("+ping",), (), (), False)


def test_nobody_has_more_than_the_keys_of_redbatch() -> None:
    """And no category of commands, but one whose other members are taken away again."""
    for user in USERS:
        assert all(pattern.startswith("rb:") and pattern != "rb:*" for pattern in (*user.writes, *user.reads))
        assert [word for word in user.commands if "@" in word] == ([f"+{BLOCKING}"] if user is GATEWAY else [])
    assert "rb:keys" in GATEWAY.reads
    assert not any(pattern in ("rb:keys", "rb:*") for pattern in (*GATEWAY.writes, *WORKER.writes, *WORKER.reads))


def test_the_file_has_a_line_for_each_user() -> None:
    """With the digests of passwords and no password; who has no name does not get in."""
    access = new_access()
    lines = access.users.splitlines()
    assert lines[0] == "user default reset off ~* &* +@all"
    assert [line.split()[1] for line in lines[1:]] == [user.name for user in USERS]
    assert sorted(access.passwords) == sorted(user.name for user in USERS if user.password)
    for line in lines[1:]:
        name = line.split()[1]
        digests = re.findall(r"#(\S+)", line)
        if name == "probe":
            assert (digests, "nopass" in line.split()) == ([], True)
        else:
            assert digests == [sha256(access.passwords[name].encode()).hexdigest()]
            assert "nopass" not in line.split()
        assert " resetchannels -@all +" in line
    assert not any(password in access.users for password in access.passwords.values())


def test_each_password_is_new() -> None:
    """To each user, and each time."""
    made = [password for _ in range(3) for password in new_access().passwords.values()]
    assert len(set(made)) == len(made) == 15
    assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in made)


def test_the_newest_password_stays_for_one_more_time() -> None:
    """Beside the new one; the one before it goes. Then one can be alone again."""
    first = new_access()
    second = new_access(first.users)
    third = new_access(second.users)
    assert newest_digests(second.users) != newest_digests(first.users)
    for name, line in zip((user.name for user in USERS), third.users.splitlines()[1:], strict=True):
        if name != "probe":
            wanted = [sha256(each.passwords[name].encode()).hexdigest() for each in (third, second)]
            assert re.findall(r"#(\S+)", line) == wanted
    alone = without_old(third.users)
    assert newest_digests(alone) == newest_digests(third.users)
    assert alone.count("#") == 5


def test_users_of_somebody_else_stay_as_they_are() -> None:
    """When passwords change, and when old ones go."""
    own = "user results on #" + "0" * 64 + " %R~rb:{*}:results resetchannels -@all +xread"
    kept = acl_file({name: ["1" * 64] for name in ("gateway", "worker", "keda", "ops", "admin")}, [own])
    assert other_users(kept) == [own]
    assert new_access(kept).users.splitlines()[-1] == own
    assert without_old(kept).splitlines()[-1] == own


@pytest.mark.parametrize("text", ["", "user gateway on nopass ~* +@all\n", "no file of users"])
def test_a_file_without_our_users_is_refused(text: str) -> None:
    """It says who is missing."""
    with pytest.raises(NoUsers, match="no user gateway with a password"):
        new_access(text)
