"""Requests for another protocol, which a server may serve in this one instead (RFC 9110, 7.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from httptools import HttpRequestParser


def head_without_upgrade(parser: HttpRequestParser, url: bytes, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns the head that a parser has read, as far as it matters, without Upgrade; `fields` have small names."""
    first = b"%b %b HTTP/%b" % (parser.get_method(), url, parser.get_http_version().encode())
    lines = [b"%b: %b" % field for field in fields if field[0] != b"upgrade"]
    return b"\r\n".join([first, *lines, b"", b""])
