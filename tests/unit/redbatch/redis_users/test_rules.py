"""The Redis users: their rights are exactly what their processes need."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from redbatch.redis_users.acl import NoUsersError, acl_file, acl_line, newest_digests, other_users
from redbatch.redis_users.passwords import drop_old_passwords, new_credentials
from redbatch.redis_users.rules import ADMIN, GATEWAY, KEDA, OPS, PEERS, PROBE, USERS, WORKER, User
from shared import scripts
from shared.scripts import Script
from tests.users import documented_user

CALL = re.compile(rb"redis\.p?call\(\s*'([A-Z_]+)'(?:, '([A-Z]+)')?")
CONTAINERS = {"xgroup", "xinfo", "client", "memory"}
BLOCKING = "@blocking"

USER_SCRIPTS: dict[str, list[Script]] = {
    "gateway": [
        *(
            scripts.SUBMIT,
            scripts.CANCEL,
            scripts.COLLECT,
            scripts.CHARGE,
            scripts.RECONCILE,
            scripts.QUEUE_STATS,
            scripts.LEASE_STATUS,
            scripts.CACHE_LOOKUP,
            scripts.CACHE_STORE,
            scripts.USAGE_ADD,
            scripts.REQUEUE,
            scripts.DEAD_LIST,
        ),
        *(scripts.JOB_UPLOAD, scripts.JOB_CREATE, scripts.JOB_DISCARD, scripts.JOB_CANCEL),
    ],
    "worker": [
        *(scripts.JOIN, scripts.CLAIM, scripts.COMMIT, scripts.MARK_BEGUN, scripts.RENEW, scripts.RECLAIM),
        *(scripts.HAND_BACK, scripts.HEARTBEAT, scripts.ANNOUNCE, scripts.LEAVE, scripts.JOB_FEED, scripts.JOB_SPLIT),
        *(scripts.LEASE_ACQUIRE, scripts.LEASE_RENEW, scripts.LEASE_RELEASE, scripts.USAGE_ADD),
    ],
    "admin": [
        *(scripts.REQUEUE, scripts.CANCEL, scripts.JOB_CANCEL),
        *(scripts.QUEUE_STATS, scripts.LEASE_STATUS, scripts.DEAD_LIST),
    ],
    "ops": [scripts.QUEUE_STATS, scripts.LEASE_STATUS, scripts.DEAD_LIST],
}
"""The scripts that each user runs."""

SENT_COMMANDS = {
    "gateway": "client|setname client|info cluster|slots client|kill ping info wait evalsha eval evalsha_ro eval_ro "
    "blpop lpop lrange hget hset hmget hgetall zrevrange xlen xrange xdel",
    "worker": "client|setname client|info cluster|slots client|kill client|unblock info evalsha eval xreadgroup blpop",
    "admin": "evalsha eval blpop hset hdel xdel xtrim acl|load acl|log script|kill",
}
"""Commands that each user sends outside of scripts. WAITAOF is allowed by its category, which Redis 7.0 knows."""


def commands_in(script: Script) -> set[str]:
    """Returns the commands that a script calls, as ACL rules name them."""
    commands = set()
    for name, sub in CALL.findall(script.text):
        command = name.decode().lower()
        commands.add(f"{command}|{sub.decode().lower()}" if command in CONTAINERS else command)
    return commands


def allowed(user: User) -> set[str]:
    """Returns the commands of a user, without those of the category that allows WAITAOF."""
    return {word[1:] for word in user.commands if word.startswith("+") and word != f"+{BLOCKING}"}


@pytest.mark.parametrize("user", [GATEWAY, WORKER], ids=lambda user: user.name)
def test_a_process_may_run_exactly_its_commands(user: User) -> None:
    """A gateway or worker may run the commands in its scripts and those it sends, and no others."""
    used = set(SENT_COMMANDS[user.name].split()).union(*map(commands_in, USER_SCRIPTS[user.name]))
    assert allowed(user) == used


def test_admin_may_run_exactly_the_commands_of_the_command_line() -> None:
    """Admin has the rights of ops, those of `redbatch dead`, `jobs` and `keys`, and may load new passwords."""
    used = set(SENT_COMMANDS["admin"].split()).union(*map(commands_in, USER_SCRIPTS["admin"]))
    feeding = {"lpop", "zadd", "zincrby"}  # appear in the text of job_cancel, which does not call them
    assert allowed(ADMIN) - allowed(OPS) == used - feeding - allowed(OPS)
    assert allowed(OPS) < allowed(ADMIN)


def test_each_script_has_a_user() -> None:
    """Every script is in the list of at least one user, so that a new one is not forgotten."""
    known = {script.name for each in USER_SCRIPTS.values() for script in each}
    assert known == {each.name for each in vars(scripts).values() if isinstance(each, Script)}


def test_only_scripts_that_write_nothing_are_read_only() -> None:
    """They are called as read-only scripts, in which Redis refuses writes."""
    reading = [each for each in vars(scripts).values() if isinstance(each, Script) and each.reads]
    assert [each.name for each in reading] == ["queue_stats", "lease_status", "dead_list"]
    assert not set().union(*map(commands_in, reading)) - allowed(OPS)


def test_read_only_users_cannot_write() -> None:
    """Keda and ops may write no key and run no command that harms the whole server."""
    for user in (KEDA, OPS):
        assert user.writes == ()
        writing = {"set", "del", "unlink", "xadd", "xdel", "xack", "xtrim", "hset", "hdel", "eval", "evalsha", "lpop"}
        assert not allowed(user) & (writing | {"flushall", "flushdb", "config|set", "keys", "monitor"})
    assert (PROBE.commands, PROBE.writes, PROBE.reads, PROBE.password) == (("+ping",), (), (), False)


def test_no_user_has_keys_outside_of_redbatch() -> None:
    """Key patterns are those of Redbatch; the one command category has its other members removed."""
    for user in USERS:
        assert all(pattern.startswith("rb:") and pattern != "rb:*" for pattern in (*user.writes, *user.reads))
        assert [word for word in user.commands if "@" in word] == ([f"+{BLOCKING}"] if user is GATEWAY else [])
    assert "rb:keys" in GATEWAY.reads
    assert not any(pattern in ("rb:keys", "rb:*") for pattern in (*GATEWAY.writes, *WORKER.writes, *WORKER.reads))


def test_the_file_has_a_line_for_each_user() -> None:
    """Lines contain digests of passwords and no passwords; the default user is off."""
    credentials = new_credentials()
    lines = credentials.users.splitlines()
    assert lines[0] == "user default reset off ~* &* +@all"
    assert [line.split()[1] for line in lines[1:]] == [user.name for user in USERS]
    assert sorted(credentials.passwords) == sorted(user.name for user in USERS if user.password)
    for line in lines[1:]:
        name = line.split()[1]
        digests = re.findall(r"#(\S+)", line)
        if name == "probe":
            assert (digests, "nopass" in line.split()) == ([], True)
        else:
            assert digests == [sha256(credentials.passwords[name].encode()).hexdigest()]
            assert "nopass" not in line.split()
        assert " resetchannels -@all +" in line
    assert not any(password in credentials.users for password in credentials.passwords.values())


def test_every_password_is_unique() -> None:
    """Passwords differ between users and between calls."""
    passwords = [password for _ in range(3) for password in new_credentials().passwords.values()]
    assert len(set(passwords)) == len(passwords) == 15
    assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in passwords)


def test_the_newest_password_stays_valid_once_more() -> None:
    """A new file keeps the previous password and drops the one before it; `drop_old_passwords` leaves one."""
    first = new_credentials()
    second = new_credentials(first.users)
    third = new_credentials(second.users)
    assert newest_digests(second.users) != newest_digests(first.users)
    for name, line in zip((user.name for user in USERS), third.users.splitlines()[1:], strict=True):
        if name != "probe":
            expected = [sha256(each.passwords[name].encode()).hexdigest() for each in (third, second)]
            assert re.findall(r"#(\S+)", line) == expected
    newest_only = drop_old_passwords(third.users)
    assert newest_digests(newest_only) == newest_digests(third.users)
    assert newest_only.count("#") == 5


def test_foreign_users_stay_unchanged() -> None:
    """Lines of foreign users stay when passwords change and when old passwords are dropped."""
    foreign = "user results on #" + "0" * 64 + " %R~rb:{*}:results resetchannels -@all +xread"
    acl_text = acl_file({name: ["1" * 64] for name in ("gateway", "worker", "keda", "ops", "admin")}, [foreign])
    assert other_users(acl_text) == [foreign]
    assert new_credentials(acl_text).users.splitlines()[-1] == foreign
    assert drop_old_passwords(acl_text).splitlines()[-1] == foreign


@pytest.mark.parametrize("text", ["", "user gateway on nopass ~* +@all\n", "not an ACL file"])
def test_a_file_without_our_users_is_refused(text: str) -> None:
    """The error names the missing user."""
    with pytest.raises(NoUsersError, match="no user gateway with a password"):
        new_credentials(text)


@pytest.mark.parametrize("user", PEERS, ids=lambda each: each.name)
def test_the_documented_lines_of_peers_have_the_same_rights(user: User) -> None:
    """docs/redis.md has them for a Redis elsewhere, where they are added by hand."""
    documented = documented_user(user.name).split()
    made = acl_line(user, [word[1:] for word in documented if word.startswith("#")]).split()
    assert {*documented} == {*made} - {"reset"}
