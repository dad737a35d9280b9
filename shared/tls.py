"""TLS to Redis: whom to trust, and what to show when Redis asks who is there."""

from __future__ import annotations

import ssl
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


def trouble(error: BaseException | None) -> str | None:
    """Returns what went wrong with TLS, where an error comes of that."""
    seen = 0
    while error is not None and seen < 8:  # noqa: PLR2004 - no chain is so long
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"TLS failed: {error.reason or error}"
        error = error.__cause__ or error.__context__
        seen += 1
    return None
