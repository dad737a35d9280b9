"""Lists of URLs of Redis, and what is wrong with one. Pure: only Redis knows its users and databases."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

SCHEMES = ("redis://", "rediss://", "unix://")
OPTIONS = ("db", "username", "password")
"""Further options of redis-py would override settings, or end the process with an exception."""

HOST = re.compile(r"[\w.:%-]*")
DATABASE = re.compile(r"(/([0-9]+/?)?)?")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")

SEPARATOR = re.compile(r",(?=[a-z+]+://)")
"""Between URLs: a comma before another scheme, as the hosts of one URL may be separated by commas too."""

NOT_ENCODED = "in a name or password, write / ? # [ ] and % as %2F %3F %23 %5B %5D and %25"


def split_urls(urls: str) -> tuple[str, ...]:
    """Returns the URLs in a list that is separated by commas."""
    return tuple(SEPARATOR.split(urls)) if urls else ()


def find_url_problem(url: str) -> str:
    """Returns what is wrong with a URL, without any part of it, as each may be of a password; "" if it is right.

    redis-py takes almost anything: of several hosts the first, database 0 for one that is no number, and of a password
    with a slash the part before it as the port.
    """
    if not url.startswith(SCHEMES):
        return "it takes a URL that begins with redis://, rediss:// or unix://"
    if CONTROL.search(url):
        return "it has a control character or a line break"
    try:
        parts = urlsplit(url)
    except ValueError:  # of square brackets
        return NOT_ENCODED if "@" in url else "its host is no name and no IP address"
    if parts.fragment:
        return NOT_ENCODED
    return (_find_path_problem(parts) if parts.scheme == "unix" else _find_host_problem(parts)) or _find_option_problem(
        parts
    )


def _find_path_problem(parts: SplitResult) -> str:
    host = parts.netloc.rpartition("@")[2]
    return (
        "" if parts.path and not host else "it takes the path of a socket after a third slash: unix:///run/redis.sock"
    )


def _find_host_problem(parts: SplitResult) -> str:
    if "@" not in parts.netloc and ("@" in parts.path or any("@" in name for name, _ in _options(parts))):
        return NOT_ENCODED
    if "," in parts.netloc.rpartition("@")[2]:
        return "it takes one host"
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    if not has_port:
        return "its port is not a number from 1 to 65535"
    if not HOST.fullmatch(parts.hostname or ""):
        return "its host is no name and no IP address"
    return "" if DATABASE.fullmatch(parts.path) else "its database, after the slash, is not a number from 0 on"


def _find_option_problem(parts: SplitResult) -> str:
    options = _options(parts)
    if any(name.startswith("ssl_") for name, _ in options):
        return "ssl_ options are not supported: use redis_tls_ca, redis_tls_cert and redis_tls_key"
    if any(name not in OPTIONS for name, _ in options):
        return f"its only options are {', '.join(OPTIONS)}"
    return (
        "" if all(value.isdecimal() for name, value in options if name == "db") else "its db is not a number from 0 on"
    )


def _options(parts: SplitResult) -> list[tuple[str, str]]:
    return parse_qsl(parts.query, keep_blank_values=True)
