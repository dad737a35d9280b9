"""Where the load goes, and its requests as bytes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

DEFAULT_PATH = "/embed"
PORTS = {"http": 80, "https": 443}
MAX_POOL_BYTES = 64 * 1024 * 1024
"""Requests are encoded before the run. Of a huge file of texts, only the first so many bytes are."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING_HEADERS = {"content-length", "transfer-encoding", "connection"}


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the path of its route."""

    host: str
    port: int
    tls: bool
    authority: str
    path: str

    @property
    def url(self) -> str:
        """The URL that requests go to."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path}"


def parse_target(url: str) -> Target:
    """Returns the target that a URL names; without a path it is that of /embed. Raises ValueError."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc or not url.isascii():
        raise ValueError(f"{url!r} is no http:// or https:// URL of a server")
    try:
        port = parts.port or PORTS[parts.scheme]
    except ValueError:
        raise ValueError(f"{url!r} has no valid port") from None
    path = parts.path if parts.path not in {"", "/"} else DEFAULT_PATH
    if re.search(r"[\x00-\x20\x7f]", path + parts.query):
        raise ValueError(f"{url!r} holds a space or a control character")
    full_path = f"{path}?{parts.query}" if parts.query else path
    return Target(parts.hostname, port, parts.scheme == "https", parts.netloc, full_path)


def parse_header(text: str) -> tuple[str, str]:
    """Returns name and value of `Name: value`. Raises ValueError."""
    name, colon, value = text.partition(":")
    if not colon or not _HEADER_NAME.fullmatch(name) or re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
        raise ValueError(f"{text!r} is no header: write it as 'Name: value'")
    if name.lower() in _FRAMING_HEADERS:
        raise ValueError(f"{name} is set by the load generator itself")
    return name, value.strip()


def encode_body(texts: Sequence[str]) -> bytes:
    """Returns the body that asks for the vectors of the texts: the simple form for one text."""
    asked = {"text": texts[0]} if len(texts) == 1 else {"texts": texts}
    return json.dumps(asked, ensure_ascii=False).encode("utf-8", "surrogatepass")


def encode_request(target: Target, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
    """Returns a whole request. A header that is given replaces the one that is sent otherwise."""
    named = {name.lower() for name, _ in headers}
    usual = [("Host", target.authority), ("Content-Type", "application/json"), ("User-Agent", "redbatch-bench")]
    kept = [pair for pair in usual if pair[0].lower() not in named]
    lines = [f"{name}: {value}\r\n" for name, value in (*kept, *headers, ("Content-Length", str(len(body))))]
    return f"POST {target.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body


def encode_requests(
    target: Target,
    headers: Sequence[tuple[str, str]],
    requests: Iterable[Sequence[str]],
    max_bytes: int = MAX_POOL_BYTES,
) -> list[bytes]:
    """Returns the requests as bytes: all of them, or as many as make up `max_bytes`."""
    encoded: list[bytes] = []
    size = 0
    for texts in requests:
        encoded.append(encode_request(target, headers, encode_body(texts)))
        size += len(encoded[-1])
        if size >= max_bytes:
            break
    return encoded
