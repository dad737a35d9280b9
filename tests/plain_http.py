"""HTTP without TLS. A client of httpx reads all certificates of the machine first, which takes 40 ms, each time."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Knows no certificate, so no https URL can be asked with it."""


def get(url: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - whatever httpx takes
    """Gets a page over a connection of its own."""
    return httpx.get(url, verify=NO_TLS, trust_env=False, **options)


def post(url: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - whatever httpx takes
    """Posts over a connection of its own."""
    return httpx.post(url, verify=NO_TLS, trust_env=False, **options)


def client(**options: Any) -> httpx.AsyncClient:  # noqa: ANN401 - whatever httpx takes
    """Returns a client with connections of its own."""
    return httpx.AsyncClient(verify=NO_TLS, trust_env=False, **options)


def blocking_client(**options: Any) -> httpx.Client:  # noqa: ANN401 - whatever httpx takes
    """Returns a client with connections of its own, for code without an event loop."""
    return httpx.Client(verify=NO_TLS, trust_env=False, **options)
