"""The revision of a model, so that vectors of one model are never confused with those of another."""

from __future__ import annotations

import hashlib
from pathlib import Path

_END_BYTES = 2**20
_DIGITS = 16


def revision_of(place: str, depends_on: str) -> str:
    """Returns the revision of a model, which differs for other files. Of large files the two ends are read.

    Args:
        place: the folder of its files, or its name if it comes from the hub.
        depends_on: everything else on which its vectors depend.
    """
    folder = Path(place)
    digest = hashlib.sha256(depends_on.encode())
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
