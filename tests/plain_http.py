"""HTTP without TLS: an httpx client reads all certificates of the machine each time, which takes 40 ms."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Contains no certificate, so requests to https URLs fail."""

TIMEOUT_S = 20.0
"""Unless a call sets another. httpx' 5 s are less than a request may take, and than a busy machine may need."""


def get(url: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - the options of httpx
    """Sends a GET request on a new connection."""
    options.setdefault("timeout", TIMEOUT_S)
    return httpx.get(url, verify=NO_TLS, trust_env=False, **options)


def post(url: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - the options of httpx
    """Sends a POST request on a new connection."""
    options.setdefault("timeout", TIMEOUT_S)
    return httpx.post(url, verify=NO_TLS, trust_env=False, **options)


def client(tls: ssl.SSLContext = NO_TLS, **options: Any) -> httpx.AsyncClient:  # noqa: ANN401 - the options of httpx
    """Returns a client with its own connections."""
    options.setdefault("timeout", TIMEOUT_S)
    return httpx.AsyncClient(verify=tls, trust_env=False, **options)


def blocking_client(**options: Any) -> httpx.Client:  # noqa: ANN401 - the options of httpx
    """Returns a client with its own connections, for code without an event loop."""
    options.setdefault("timeout", TIMEOUT_S)
    return httpx.Client(verify=NO_TLS, trust_env=False, **options)
