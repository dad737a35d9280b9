"""The server under load, and its requests as bytes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

DEFAULT_PATH = "/embed"
PORTS = {"http": 80, "https": 443}
MAX_POOL_BYTES = 64 * 1024 * 1024
"""Requests are encoded before the run. Of a huge file of texts, only about this many bytes are encoded."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING_HEADERS = {"content-length", "transfer-encoding", "connection"}


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the path of a route."""

    host: str
    port: int
    tls: bool
    authority: str
    path: str

    @property
    def url(self) -> str:
        """URL of the requests."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path}"


def parse_target(url: str, route: str | None = None, default: str = DEFAULT_PATH) -> Target:
    """Parses a URL; without a path, the route is `route` or `default`. Raises ValueError, also if both name a route."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc or not url.isascii():
        raise ValueError(f"{url!r} is not an http:// or https:// URL of a server")
    try:
        port = parts.port or PORTS[parts.scheme]
    except ValueError:
        raise ValueError(f"{url!r} has no valid port") from None
    has_path = parts.path not in {"", "/"}
    if has_path and route is not None:
        raise ValueError(f"--path {route}: the URL names the route {parts.path} already; leave one of them out")
    path = parts.path if has_path else route or default
    if re.search(r"[\x00-\x20\x7f]", path + parts.query):
        raise ValueError(f"{url!r} contains a space or a control character")
    full_path = f"{path}?{parts.query}" if parts.query else path
    return Target(parts.hostname, port, parts.scheme == "https", parts.netloc, full_path)


def parse_header(text: str) -> tuple[str, str]:
    """Parses `Name: value`. Raises ValueError."""
    name, colon, value = text.partition(":")
    if not colon or not _HEADER_NAME.fullmatch(name) or re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
        raise ValueError(f"{text!r} is not a header: write it as 'Name: value'")
    if name.lower() in _FRAMING_HEADERS:
        raise ValueError(f"{name} is set by the load generator itself")
    return name, value.strip()


def encode_body(texts: Sequence[str]) -> bytes:
    """Returns the body of a request for the vectors of texts: the short form for one text."""
    body = {"text": texts[0]} if len(texts) == 1 else {"texts": texts}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


def encode_request(target: Target, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
    """Returns a complete request. The given headers replace default headers of the same name."""
    names = {name.lower() for name, _ in headers}
    defaults = [("Host", target.authority), ("Content-Type", "application/json"), ("User-Agent", "redbatch-bench")]
    default_headers = [pair for pair in defaults if pair[0].lower() not in names]
    lines = [f"{name}: {value}\r\n" for name, value in (*default_headers, *headers, ("Content-Length", str(len(body))))]
    return f"POST {target.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body


def encode_requests(
    target: Target,
    headers: Sequence[tuple[str, str]],
    requests: Iterable[Sequence[str]],
    max_bytes: int = MAX_POOL_BYTES,
) -> list[bytes]:
    """Returns encoded requests for texts, limited as by `encode_bodies`."""
    return encode_bodies(target, headers, map(encode_body, requests), max_bytes)


def encode_bodies(
    target: Target, headers: Sequence[tuple[str, str]], bodies: Iterable[bytes], max_bytes: int = MAX_POOL_BYTES
) -> list[bytes]:
    """Returns encoded requests: all of them, or those that reach `max_bytes` in total, but at least one."""
    encoded: list[bytes] = []
    size = 0
    for body in bodies:
        encoded.append(encode_request(target, headers, body))
        size += len(encoded[-1])
        if size >= max_bytes:
            break
    return encoded
