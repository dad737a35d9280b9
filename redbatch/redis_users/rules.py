"""The users of Redis and what each may do: no more than it does. They need Redis 7, which tells reading from writing.

A script may do what its caller may, so the commands inside the scripts of a side are among those of its user. Who
calls a script by EVAL or EVALSHA needs to read and write each of its KEYS; by their _RO forms, only to read them. AUTH,
HELLO, QUIT and RESET are free to all. Nobody has SELECT, so all is in database 0, and nobody has a channel.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class User:
    """A user: key patterns that it may write to (and read), those that it may only read, and its commands.

    `commands` are ACL words, in the order in which Redis has to read them. One without `password` gets in with any.
    """

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    commands: tuple[str, ...]
    password: bool = True


def _commands(*lines: str) -> tuple[str, ...]:
    return tuple(word for line in lines for word in line.split())


GATEWAY = User(
    "gateway",
    writes=(
        "rb:{*}:q:*",  # adds entries, and takes them back
        "rb:{*}:backlog",
        "rb:{*}:epoch",
        "rb:{*}:submitted:*",
        "rb:{*}:tenants",
        "rb:{*}:reply:*",  # pops them
        "rb:{*}:bell:*",
        "rb:{*}:cache*",
        "rb:{*}:job*",  # the jobs' own, :jobs and what is beside it
        "rb:{*}:idempotency:*",
        "rb:{*}:results",  # of a job that it cancels
    ),
    # Not to write: whoever takes a gateway over makes no key, and no worker out of nothing. Dead letters it counts.
    reads=("rb:keys", "rb:queues", "rb:{*}:workers", "rb:{*}:worker:*", "rb:{*}:dead"),
    commands=_commands(
        "+client|setname +client|info",  # each connection says who it is, and learns its id
        "+client|kill",  # settle: of its own that broke. Redis has no such right for one's own alone
        "+ping +time +info",
        "+evalsha +eval",  # EVAL for a script that Redis does not know yet
        "+evalsha_ro +eval_ro",  # the state of a queue, with keys that it may only read
        "+blpop +lpop +rpush +lrange",
        "+get +set +del +unlink +exists +pexpire +persist",
        "+hget +hset +hmget +hgetall +hdel +hlen +hincrby",
        "+xadd +xlen +xrange +xdel +xack +xpending",
        "+zadd +zincrby +zrem +zremrangebyrank +zcard +zrange +zrevrange",
        "+wait",
        # WAITAOF, by a name that Redis 7.0 knows too: there it would refuse the whole file for an unknown command.
        "+@blocking -blmove -blmpop -brpop -brpoplpush -bzmpop -bzpopmax -bzpopmin -xread -xreadgroup",
    ),
)

WORKER = User(
    "worker",
    writes=(
        "rb:{*}:q:*",
        "rb:{*}:backlog",
        "rb:{*}:epoch",  # join: a new group on an old queue
        "rb:{*}:reply:*",
        "rb:{*}:bell:*",
        "rb:{*}:dead",
        "rb:{*}:worker*",  # its heartbeat, and :workers
        "rb:{*}:standby",
        "rb:{*}:begun:*",
        "rb:{*}:job*",
        "rb:{*}:results",
        "rb:{gpu:*}:*",  # leases of GPUs
        "rb:queues",
    ),
    reads=(),
    commands=_commands(
        "+client|setname +client|info",
        "+client|kill +client|unblock",  # of its own, as a gateway's
        "+time",
        "+evalsha +eval",
        "+blpop +lpop +rpush",
        "+get +set +del +unlink +exists +pexpire +pttl",
        "+hget +hset +hmget +hgetall +hdel +hincrby",
        "+xadd +xlen +xrange +xdel +xack +xclaim +xpending +xreadgroup +xtrim",
        "+xgroup|create +xgroup|delconsumer +xinfo|consumers",
        "+zadd +zincrby +zrem +zremrangebyscore +zcard +zcount +zrange",
    ),
)

KEDA = User(
    "keda",
    writes=(),
    reads=("rb:{*}:q:*",),
    # It connects, and asks how long the streams are: what waits and what runs.
    commands=_commands("+ping +xlen"),
)

OPS = User(
    "ops",
    writes=(),
    # Entries, dead letters and jobs hold texts of clients. Left out is what nobody has to look at: replies, bells, what
    # gateways note for themselves.
    reads=(
        "rb:{*}:q:*",
        "rb:{*}:backlog",
        "rb:{*}:epoch",
        "rb:{*}:tenants",
        "rb:{*}:worker*",
        "rb:{*}:standby",
        "rb:{*}:begun:*",
        "rb:{*}:dead",
        "rb:{*}:job*",
        "rb:{*}:results",
        "rb:{*}:cache*",  # what fills the memory
        "rb:{gpu:*}:*",
        "rb:queues",
        "rb:keys",  # digests of secrets that nobody can guess
    ),
    commands=_commands(
        "+client|setname +client|info +client|list",
        "+ping +time +info +dbsize +scan +acl|whoami",
        "+command",  # redis-cli asks for it, to help who types
        "+slowlog|get +slowlog|len +latency|latest +latency|history +memory|usage +memory|stats",
        "+evalsha_ro +eval_ro",  # `redbatch queue`: Redis refuses every write in these
        "+type +exists +ttl +pttl",
        "+get +strlen +llen +lrange",
        "+hget +hmget +hgetall +hlen",
        "+xlen +xrange +xrevrange +xpending +xinfo|stream +xinfo|groups +xinfo|consumers",
        "+zcard +zcount +zscore +zrange +zrevrange",
    ),
)

ADMIN = User(
    "admin",
    # What `redbatch keys`, `dead` and `jobs` change. Not the gateway's rights: a gateway is what clients can reach.
    writes=(
        "rb:keys",
        "rb:{*}:dead",
        "rb:{*}:q:*",  # dead letters that run again, and jobs that are cancelled
        "rb:{*}:backlog",
        "rb:{*}:reply:*",
        "rb:{*}:job*",
        "rb:{*}:results",
    ),
    reads=OPS.reads,
    commands=(
        *OPS.commands,
        *_commands(
            "+acl|load",  # new passwords, from Redis' own file
            "+acl|log",  # who was refused what
            "+script|kill",  # a script that does not end: ops may call such a one, too
            "+evalsha +eval",
            "+blpop +rpush +del +unlink +pexpire",
            "+hset +hdel +hincrby",
            "+xadd +xdel +xtrim +xack",
            "+zrem",
        ),
    ),
)

PROBE = User("probe", writes=(), reads=(), commands=("+ping",), password=False)
"""Asks whether Redis lives: a health check cannot keep a secret."""

USERS = (GATEWAY, WORKER, KEDA, OPS, ADMIN, PROBE)
