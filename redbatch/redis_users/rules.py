"""The Redis users and their rights: the minimum that each needs. Pure.

They need Redis 7, which distinguishes read from write access to keys. A script runs with the rights of its caller, so
the commands inside the scripts of a process are among those of its user. EVAL and EVALSHA need read and write access to
each of the KEYS; their _RO forms need only read access. Every user may call AUTH, HELLO, QUIT and RESET. No user has
SELECT, so all data is in database 0, and only sentinels have a channel.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class User:
    """A user: key patterns it may write and read (`writes`), patterns it may only read (`reads`), and its commands.

    `commands` are ACL rules, in the order in which Redis must read them, and `channels` those that it may use. If
    `password` is false, any password is valid.
    """

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    commands: tuple[str, ...]
    password: bool = True
    channels: tuple[str, ...] = ()


def _commands(*lines: str) -> tuple[str, ...]:
    return tuple(word for line in lines for word in line.split())


GATEWAY = User(
    "gateway",
    writes=(
        "rb:{*}:q:*",  # adds entries, and cancels them
        "rb:{*}:backlog",
        "rb:{*}:epoch",
        "rb:{*}:submitted:*",
        "rb:{*}:tenants",
        "rb:{*}:reply:*",  # pops them
        "rb:{*}:bell:*",
        "rb:{*}:cache*",
        "rb:{*}:job*",  # the jobs themselves, :jobs, and the keys beside it
        "rb:{*}:idempotency:*",
        "rb:{*}:results",  # of a job that it cancels
        "rb:{*}:dead",  # requeues and deletes them for operators at the console
        "rb:{usage:all}:*",
    ),
    # Read only: an attacker who controls a gateway must not create API keys or fake workers. The console shows leases.
    reads=("rb:keys", "rb:queues", "rb:{*}:workers", "rb:{*}:worker:*", "rb:{gpu:*}:*"),
    commands=_commands(
        "+client|setname +client|info",  # each connection sets its name and reads its id
        "+cluster|slots",  # where the servers of a Redis Cluster are
        # reconcile: kills broken connections of the gateway. Redis cannot limit this right to a user's own connections.
        "+client|kill",
        "+ping +time +info",
        "+evalsha +eval",  # EVAL for a script that Redis has not loaded yet
        "+evalsha_ro +eval_ro",  # queue statistics, and lists of dead letters
        "+blpop +lpop +rpush +lrange",
        "+get +set +del +unlink +pexpire +persist +pttl",
        "+hget +hset +hmget +hgetall +hdel +hlen +hkeys +hstrlen +hincrby",
        "+xadd +xlen +xrange +xrevrange +xdel +xack +xpending",
        "+zadd +zincrby +zrem +zremrangebyrank +zcard +zrange +zrevrange",
        "+wait",
        # WAITAOF, through its category: Redis 7.0 does not know the command and would reject the whole file.
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
        "rb:{*}:idempotency:*",  # of jobs that end
        "rb:{*}:results",
        "rb:{gpu:*}:*",  # leases of GPUs
        "rb:{usage:all}:*",
        "rb:queues",
    ),
    reads=(),
    commands=_commands(
        "+client|setname +client|info +cluster|slots",
        "+client|kill +client|unblock",  # for its own connections, as for a gateway
        "+time +info",  # INFO: which Redis a connection leads to, and the eviction policy
        "+evalsha +eval",
        "+blpop +lpop +rpush",
        "+get +set +del +unlink +exists +pexpire +pttl",
        "+hget +hset +hmget +hgetall +hdel +hlen +hkeys +hstrlen +hincrby",
        "+xadd +xlen +xrange +xdel +xack +xclaim +xpending +xreadgroup +xtrim",
        "+xgroup|create +xgroup|delconsumer +xinfo|consumers",
        "+zadd +zincrby +zrem +zremrangebyscore +zcard +zcount +zrange",
    ),
)

KEDA = User(
    "keda",
    writes=(),
    reads=("rb:{*}:q:*",),
    # It connects and reads the lengths of the streams: waiting and running entries.
    commands=_commands("+ping +xlen"),
)

OPS = User(
    "ops",
    writes=(),
    # Entries, dead letters and jobs contain texts of clients. Excluded are keys that no operator needs: replies, bells,
    # and the private records of gateways.
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
        "rb:{*}:cache*",  # the main use of memory
        "rb:{gpu:*}:*",
        "rb:{usage:all}:hour:*",
        "rb:queues",
        "rb:keys",  # digests of secrets that cannot be guessed
    ),
    commands=_commands(
        "+client|setname +client|info +client|list +cluster|slots",
        "+ping +time +info +dbsize +scan +acl|whoami",
        "+command",  # redis-cli requests it for its command hints
        "+slowlog|get +slowlog|len +latency|latest +latency|history +memory|usage +memory|stats",
        "+evalsha_ro +eval_ro",  # `redbatch queue`, `leases` and `dead list`: Redis refuses any write in these
        "+type +exists +ttl +pttl",
        "+get +strlen +llen +lrange",
        "+hget +hmget +hgetall +hlen",
        "+xlen +xrange +xrevrange +xpending +xinfo|stream +xinfo|groups +xinfo|consumers",
        "+zcard +zcount +zscore +zrange +zrevrange",
    ),
)

ADMIN = User(
    "admin",
    # Keys that `redbatch keys`, `dead` and `jobs` change. A gateway lacks the right to API keys: clients can reach it.
    writes=(
        "rb:keys",
        "rb:{*}:dead",
        "rb:{*}:q:*",  # requeued dead letters, and cancelled jobs
        "rb:{*}:backlog",
        "rb:{*}:reply:*",
        "rb:{*}:job*",
        "rb:{*}:idempotency:*",  # of jobs that it cancels
        "rb:{*}:results",
    ),
    reads=OPS.reads,
    commands=(
        *OPS.commands,
        *_commands(
            "+acl|load",  # new passwords, from the ACL file of Redis
            "+acl|log",  # commands that were refused, by user
            "+script|kill",  # ends a script that hangs; ops may start such a script, too
            "+evalsha +eval",
            "+blpop +rpush +del +unlink +pexpire",
            "+hset +hdel +hincrby +hkeys +hstrlen",
            "+xadd +xdel +xtrim +xack",
            "+zrem",
        ),
    ),
)

PROBE = User("probe", writes=(), reads=(), commands=("+ping",), password=False)
"""Checks that Redis is alive. It has no password, because a health check cannot keep a secret."""

REPLICA = User("replica", writes=(), reads=(), commands=("+psync", "+replconf", "+ping"))
SENTINEL = User(
    "sentinel",
    writes=(),
    reads=(),
    commands=_commands(
        "+ping +info +role +publish +subscribe",
        "+multi +exec +slaveof +replicaof +config|rewrite +client|setname +client|kill +script|kill",  # a failover
    ),
    channels=("__sentinel__:hello",),
)

USERS = (GATEWAY, WORKER, KEDA, OPS, ADMIN, PROBE)
PEERS = (REPLICA, SENTINEL)
"""Further users where Redis has replicas and sentinels."""
