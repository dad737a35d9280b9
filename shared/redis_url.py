"""URLs of Redis: what each names, what is wrong with it, and lists of them. Pure: only Redis knows its users.

redis-py reads URLs of one server. Those of Sentinel and of a Redis Cluster name several, of which each may know where
to connect to. A user and password in a URL are those of Redis itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

T = TypeVar("T")

DEFAULT_REDIS_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379


class Kind(Enum):
    """What the hosts of a URL are: Redis itself, sentinels that know its master, or servers of a Redis Cluster."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


SCHEMES = {
    "redis": Kind.SERVER,
    "rediss": Kind.SERVER,
    "unix": Kind.SERVER,
    "redis+sentinel": Kind.SENTINEL,
    "rediss+sentinel": Kind.SENTINEL,
    "redis+cluster": Kind.CLUSTER,
    "rediss+cluster": Kind.CLUSTER,
}
OPTIONS = ("db", "username", "password")
"""Further options of redis-py would override settings, or end the process with an exception."""

HOST = re.compile(r"[\w.:%-]*")
DATABASE = re.compile(r"(/([0-9]+/?)?)?")
MASTER = re.compile(r"/(?P<name>[\w.-]+)(?P<database>(/[0-9]*)?)/?")
SHARD = re.compile(r"&?shard=(?P<number>[0-9]+)/(?P<of>[0-9]+)$")
"""The last option of a URL that names one shard of each queue in a Redis Cluster, as `shard_url` writes it."""

ENCODED_NAME = re.compile(r"(^|&)[^=&]*%")
"""An option whose name is written with %: `mask_password` would not find a password."""

CONTROL = re.compile(r"[\x00-\x1f\x7f]")

SEPARATOR = re.compile(r",(?=[a-z+]+://)")
"""Between URLs: a comma before another scheme, as the hosts of one URL may be separated by commas too."""

MASK = "***"

NOT_ENCODED = "in a name or password, write / ? # [ ] and % as %2F %3F %23 %5B %5D and %25"


class Address(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisUrl(NamedTuple):
    """What a URL names.

    `nodes` are the addresses in it, none for a socket. `server_url` is the URL of Redis at the first of them, with the
    same user, password and database, as redis-py reads it. `master` is the name that sentinels have for it. `shard` is
    the number of a shard and how many a Redis Cluster has of each queue.
    """

    kind: Kind
    nodes: tuple[Address, ...]
    server_url: str
    master: str = ""
    shard: tuple[int, int] = (0, 1)

    @property
    def has_tls(self) -> bool:
        """Whether connections use TLS."""
        return self.server_url.startswith("rediss://")


def parse_url(url: str) -> RedisUrl:
    """Parses a URL in which `find_url_problem` finds nothing."""
    parts = urlsplit(url)
    kind = SCHEMES[parts.scheme]
    if parts.scheme == "unix":
        return RedisUrl(kind, (), url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    default_port = DEFAULT_SENTINEL_PORT if kind is Kind.SENTINEL else DEFAULT_REDIS_PORT
    nodes = tuple(_parse_node(host, default_port) for host in hosts.split(","))
    if kind is Kind.SERVER:
        return RedisUrl(kind, nodes, url)
    shard, query = _parse_shard(parts.query)
    match = MASTER.fullmatch(parts.path)
    name, path = (match["name"], match["database"]) if kind is Kind.SENTINEL and match else ("", parts.path)
    scheme, netloc = parts.scheme.partition("+")[0], f"{credentials}{at}{nodes[0]}"
    server = parts._replace(scheme=scheme, netloc=netloc, path=path, query=query)
    return RedisUrl(kind, nodes, server.geturl(), name, shard)


def _parse_node(text: str, default_port: int) -> Address:
    parts = urlsplit(f"//{text}")
    return Address(parts.hostname or "localhost", parts.port or default_port)


def shard_url(url: str, number: int, num_shards: int) -> str:
    """Returns the URL of one shard of each queue in a Redis Cluster."""
    return f"{url}{'&' if '?' in url else '?'}shard={number}/{num_shards}"


def one_per_keyspace(urls: Iterable[str], items: Iterable[T]) -> list[T]:
    """Returns one item for each Redis, and one for all shards of a Redis Cluster, given the URL of each item.

    Shards of one Redis Cluster share what belongs to no queue alone: the API keys, and the list of queues.
    """
    by_url: dict[str, T] = {}
    for url, item in zip(urls, items, strict=True):
        by_url.setdefault(SHARD.sub("", url), item)
    return list(by_url.values())


def _parse_shard(query: str) -> tuple[tuple[int, int], str]:
    """Returns the shard that the query of a URL names, and the query without it."""
    match = SHARD.search(query)
    if match is None:
        return (0, 1), query
    return (int(match["number"]), int(match["of"])), SHARD.sub("", query)


def describe_address(url: str) -> str:
    """Returns the hosts and ports of a URL, or the path of its socket, for logs."""
    parsed = parse_url(url)
    hosts = ",".join(map(str, parsed.nodes)) or urlsplit(url).path
    number, num_shards = parsed.shard
    if num_shards > 1:
        return f"{hosts} shard {number}/{num_shards}"
    return f"{hosts}/{parsed.master}" if parsed.master else hosts


def mask_password(url: str) -> str:
    """Returns the URL with its password as ***. redis-py reads a password before the host or in the query."""
    masked = re.sub(r"(?P<user>://[^/@]*?):[^/]*@", rf"\g<user>:{MASK}@", url, count=1)
    return re.sub(r"([?&]password=)[^&#]*", rf"\g<1>{MASK}", masked)


def split_urls(urls: str) -> tuple[str, ...]:
    """Returns the URLs in a list that is separated by commas."""
    return tuple(SEPARATOR.split(urls)) if urls else ()


def has_password(url: str) -> bool:
    """Whether a URL has a password: before the host, or as an option."""
    parts = urlsplit(url)
    return parts.password is not None or any(name == "password" for name, _ in _options(parts))


def find_url_problem(url: str) -> str:
    """Returns what is wrong with a URL, without any part of it, as each may be of a password; "" if it is right.

    redis-py takes almost anything: of several hosts the first, database 0 for one that is no number, and of a password
    with a slash the part before it as the port.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        return "it takes a URL that begins with redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
    if CONTROL.search(url):
        return "it has a control character or a line break"
    try:
        parts = urlsplit(url)
    except ValueError:  # of square brackets
        return NOT_ENCODED if "@" in url else "its host is no name and no IP address"
    if parts.fragment:
        return NOT_ENCODED
    find = _find_path_problem if parts.scheme == "unix" else _find_hosts_problem
    return find(parts) or _find_option_problem(parts)


def _find_path_problem(parts: SplitResult) -> str:
    host = parts.netloc.rpartition("@")[2]
    return (
        "" if parts.path and not host else "it takes the path of a socket after a third slash: unix:///run/redis.sock"
    )


def _find_hosts_problem(parts: SplitResult) -> str:
    if "@" not in parts.netloc and ("@" in parts.path or any("@" in name for name, _ in _options(parts))):
        return NOT_ENCODED
    kind, hosts = SCHEMES[parts.scheme], parts.netloc.rpartition("@")[2].split(",")
    if kind is Kind.SERVER and len(hosts) > 1:
        return "it takes one host: several are for redis+sentinel:// and redis+cluster://"
    if kind is not Kind.SERVER and not all(hosts):
        return "one of its hosts is empty"
    for host in hosts:
        if problem := _find_host_problem(host):
            return problem
    return _find_database_problem(kind, parts)


def _find_host_problem(host: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    if not has_port:
        return "its port is not a number from 1 to 65535"
    return "" if HOST.fullmatch(parts.hostname or "") else "its host is no name and no IP address"


def _find_database_problem(kind: Kind, parts: SplitResult) -> str:
    if kind is Kind.SENTINEL:
        return (
            ""
            if MASTER.fullmatch(parts.path)
            else "after its hosts, it takes the name of the master, and maybe a database: /mymaster/0"
        )
    if not DATABASE.fullmatch(parts.path):
        return "its database, after the slash, is not a number from 0 on"
    databases = [parts.path.strip("/"), *(value for name, value in _options(parts) if name == "db")]
    if kind is Kind.CLUSTER and any(each.strip("0") for each in databases):
        return "a Redis Cluster has only database 0"
    return ""


def _find_option_problem(parts: SplitResult) -> str:
    options = _options(parts)
    if any(name.startswith("ssl_") for name, _ in options):
        return "ssl_ options are not supported: use redis_tls_ca, redis_tls_cert and redis_tls_key"
    if SCHEMES[parts.scheme] is Kind.CLUSTER and (match := SHARD.search(parts.query)):
        if int(match["number"]) >= int(match["of"]):
            return "its shard is not a number from 0 on, below the number of all: shard=0/3 to shard=2/3"
        options = options[:-1]
    if any(name not in OPTIONS for name, _ in options) or ENCODED_NAME.search(parts.query):
        return f"its only options are {', '.join(OPTIONS)}"
    return (
        "" if all(value.isdecimal() for name, value in options if name == "db") else "its db is not a number from 0 on"
    )


def _options(parts: SplitResult) -> list[tuple[str, str]]:
    return parse_qsl(parts.query, keep_blank_values=True)
