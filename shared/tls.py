"""TLS to Redis: which authorities to trust, and which client certificate to send."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files. Without `ca` the system's authorities are trusted."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Reads the files and returns the context: it always verifies the certificate and its host name.

        Raises:
            OSError: a file cannot be read, or has the wrong content (ssl.SSLError).
        """
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
        return context


def _no_password() -> str:
    """Without this, OpenSSL would prompt on the terminal for the password of an encrypted key."""
    return ""


def describe_tls_error(error: BaseException) -> str | None:
    """Returns what failed in TLS, or None if an error while connecting has another cause."""
    for each in _chain(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {each.verify_message}"
        if isinstance(each, ssl.SSLError):
            return f"TLS failed: {(each.reason or str(each)).replace('_', ' ').lower()}"
    # The reset of the connection may arrive before the TLS alert.
    if any(isinstance(each, ConnectionResetError) for each in _chain(error)):
        return "it closed the connection at once; if it requires a client certificate: certificate required"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
