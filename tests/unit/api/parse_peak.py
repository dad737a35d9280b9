"""Prints by how many bytes a process grows while it parses a body, and the size of that: `python -m … SHAPE`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from api.dialects.parsing import MAX_PARTS, check_parts, parse_object
from shared.errors import TooLargeError

PARTS = {
    "lists": b"[],",
    "objects": b"{},",
    "texts": b'"a",',
    "numbers": b"1e9,",
    "long numbers": b"12345678901234567,",
    "nested lists": b"[[[[[[[1]]]]]]],",
    "nested objects": b'{"a":{"b":1}},',
}
WIDE_TEXT = "a text whose characters take four bytes"
SHAPES = (*PARTS, WIDE_TEXT)
"""The shapes that take most memory for their bytes."""


def largest_body(shape: str) -> bytes:
    """Returns a body of the shape, with as many parts as are accepted."""
    if shape == WIDE_TEXT:
        return b'{"a":"' + "\N{GRINNING FACE}".encode() + b"a" * 30_000_000 + b'"}'
    for number in range(MAX_PARTS, 0, -10_000):
        body = b'{"a":[' + PARTS[shape] * number + b"0]}"
        try:
            check_parts(body)
        except TooLargeError:
            continue
        return body
    raise AssertionError("each body has too many parts")


def peak_bytes(pid: int | str) -> int:
    """Returns the largest memory (RSS) of a process since it began; getrusage would count its parent, too."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kib) * 1_024


def main() -> None:
    """Prints both numbers."""
    body = largest_body(sys.argv[1])
    before = peak_bytes("self")
    parse_object(body)
    sys.stdout.write(f"{peak_bytes('self') - before} {len(body)}\n")


if __name__ == "__main__":
    main()
