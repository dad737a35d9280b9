"""TLS to Redis: whom to trust, and what to show when Redis asks who is there."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files. Without `ca` it is the system's authorities that are trusted."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Reads the files, and returns what makes connections: the certificate and its host name are verified always.

        Raises:
            OSError: a file cannot be read, or is not what it should be (ssl.SSLError).
        """
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
        return context


def _no_password() -> str:
    """Without this, OpenSSL would ask on the terminal for that of a key which has one."""
    return ""


def describe_tls_error(error: BaseException) -> str | None:
    """Returns what went wrong with TLS, where an error in connecting comes of that."""
    for each in _chain(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {each.verify_message}"
        if isinstance(each, ssl.SSLError):
            return f"TLS failed: {(each.reason or str(each)).replace('_', ' ').lower()}"
    if any(isinstance(each, ConnectionResetError) for each in _chain(error)):  # which may overtake the alert
        return "it hung up at once; if it asks for a certificate: certificate required"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
