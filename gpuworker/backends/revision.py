"""What a model is known by, so that vectors of one are never taken for those of another."""

from __future__ import annotations

import hashlib
from pathlib import Path

_END_BYTES = 2**20
_DIGITS = 16


def revision_of(place: str, what: str) -> str:
    """Returns what a model is known by: another for other files. Of large files the two ends are read.

    Args:
        place: the folder of its files, or its name where it comes from the hub.
        what: on what else its vectors depend.
    """
    folder = Path(place)
    digest = hashlib.sha256(what.encode())
    if not folder.is_dir():
        digest.update(place.encode())
        return digest.hexdigest()[:_DIGITS]
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(_END_BYTES))
            file.seek(max(0, size - _END_BYTES))
            digest.update(file.read(_END_BYTES))
    return digest.hexdigest()[:_DIGITS]
