"""URLs and command lines to print: ready to paste into a shell."""

from __future__ import annotations

import shlex
from urllib.parse import parse_qs, unquote, urlsplit

from shared.process.listener import WILDCARDS
from shared.redis_url import Kind, mask_password, parse_url


def http_url(host: str, port: int) -> str:
    """Returns the URL at which this machine reaches a server that listens on `host`."""
    reachable = WILDCARDS.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def redis_cli_line(program: str, url: str, *command: str) -> str:
    """Returns a command line that sends a command to the Redis at `url`, quoted for a shell, its password masked.

    For a URL of sentinels it asks one of them where the master is, as only they know.
    """
    parsed, parts = parse_url(url), urlsplit(url)
    if parsed.kind is Kind.SENTINEL:  # they know where the master is
        sentinel = parsed.nodes[0]
        where = ["-h", sentinel.host, "-p", str(sentinel.port)]
        return shlex.join([program, *where, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", parsed.master])
    if parsed.kind is Kind.CLUSTER:
        return shlex.join([program, "-c", "-u", mask_password(parsed.server_url), *command])
    if parts.scheme == "unix":
        database = parse_qs(parts.query).get("db", ["0"])[0]
        return shlex.join([program, "-s", unquote(parts.path), "-n", database, *command])
    return shlex.join([program, "-u", mask_password(url), *command])
