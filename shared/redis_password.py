"""The password of Redis in a file, where another program renews it because it expires."""

from __future__ import annotations

import os
from pathlib import Path


def read_password(path: str) -> str:
    """Returns the content of a file, without white space around it. Raises ValueError, which says what is wrong."""
    try:
        password = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"it cannot be read ({os.strerror(error.errno or 0)})") from None
    except ValueError:
        raise ValueError("it is not UTF-8") from None
    if not password:
        raise ValueError("it is empty")
    return password
