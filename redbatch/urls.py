"""Addresses as people see them: without passwords, and such that they can be pasted."""

from __future__ import annotations

import re
import shlex
from urllib.parse import parse_qs, urlsplit

from shared.process.listener import WILDCARDS

MASK = "***"


def mask_password(url: str) -> str:
    """Returns the URL with its password as ***, wherever redis-py reads one: before the host or in the query."""
    masked = re.sub(r"(?P<user>://[^/@]*?):[^/]*@", rf"\g<user>:{MASK}@", url, count=1)
    return re.sub(r"([?&]password=)[^&#]*", rf"\g<1>{MASK}", masked)


def http_url(host: str, port: int) -> str:
    """Returns the URL under which this machine reaches a server that listens on `host`."""
    reachable = WILDCARDS.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def curl_line(url: str, key: str = "", *, function: bool = False) -> str:
    """Returns a command line that embeds one text, or asks a `function`, with a key where one is needed."""
    path, asked = ("predict", '{"input": 1}') if function else ("embed", '{"text": "hello"}')
    with_key = ["-H", f"Authorization: Bearer {key}"] if key else []
    body = ["-H", "Content-Type: application/json", "-d", asked]
    return shlex.join(["curl", "-s", f"{url}/{path}", *with_key, *body])


def redis_cli_line(program: str, url: str, *command: str) -> str:
    """Returns a command line that asks the Redis behind `url`, quoted for a shell. A password in it is masked."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        database = parse_qs(parts.query).get("db", ["0"])[0]
        return shlex.join([program, "-s", parts.path, "-n", database, *command])
    return shlex.join([program, "-u", mask_password(url), *command])
