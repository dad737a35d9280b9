"""Marks integers of more than 64 bits in JSON, which orjson reads as floats: a function would get others. Pure."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import numpy as np

MARK = secrets.token_hex(7)
"""The key of the object that stands for such an integer. No client knows it, so that no valid input holds it."""

_MARKED = b'{"%b":0}' % MARK.encode()  # as long as the shortest of these integers
PIECE_BYTES = 2**18
BASE, MIN_DIGITS = 10, 19
_RUN = b"0" * MIN_DIGITS
_TO_ZEROS = bytes(ord("0" if char in b"0123456789" else " ") for char in range(256))
_BETWEEN = re.compile(rb"[^0-9+\-.eE]")
"""A byte that is part of no number: a document can be cut before it."""

_IN_NUMBERS = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", dtype=np.uint8))


def mark_long_integers(document: bytes) -> bytes | bytearray:
    """Returns JSON with an object in place of each integer outside -2^63 to 2^64 - 1.

    The object has the key MARK. JSON that is invalid stays so. Most documents have nowhere as many digits in a row, and
    are only searched for these, which takes less time than parsing them.
    """
    if not _has_run(document):
        return document
    marked: bytearray | None = None
    offset, in_text, is_escaped = 0, False, False
    for piece in _pieces(document):
        plain = (b" " + piece[1:] if is_escaped else piece).replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        quotes = plain.count(b'"')
        if (quotes or not in_text) and _RUN in plain.translate(_TO_ZEROS):
            for start, stop in _find_long_integers(plain, in_text=in_text):
                marked = bytearray(document) if marked is None else marked
                marked[offset + start : offset + stop] = _MARKED.ljust(stop - start)
        offset += len(piece)
        in_text ^= quotes % 2 == 1
        is_escaped = plain.endswith(b"\\")
    return document if marked is None else marked


def _has_run(document: bytes) -> bool:
    for start in range(0, len(document), PIECE_BYTES):
        if _RUN in document[start : start + PIECE_BYTES + MIN_DIGITS].translate(_TO_ZEROS):
            return True
    return False


def _pieces(document: bytes) -> Iterator[bytes]:
    """Yields pieces, which bound the memory of a search: of about PIECE_BYTES, unless a number or text has no end."""
    start = 0
    while len(document) - start > PIECE_BYTES:
        limit = start + PIECE_BYTES
        stop = document.rfind(b'"', start, limit) + 1
        if not stop:
            end = _BETWEEN.search(document, limit)
            stop = end.start() if end else len(document)
        yield document[start:stop]
        start = stop
    yield document[start:]


def _find_long_integers(plain: bytes, *, in_text: bool) -> Iterator[tuple[int, int]]:
    """Returns start and stop of each of the integers in a piece without escaped quotes, which may begin in a text."""
    chars = np.frombuffer(b"  %b " % plain, dtype=np.uint8)  # a number has neighbours then
    outside = np.logical_xor.accumulate(chars == ord('"')) == in_text
    runs = (chars - ord("0") < BASE) & outside
    for shift in (1, 2, 4, 8, 3):  # from digits to whole runs of MIN_DIGITS, by their first digits
        runs = runs[:-shift] & runs[shift:]
    edges = np.flatnonzero(runs[1:] != runs[:-1]) + 1
    first, stop = edges[::2], edges[1::2] + MIN_DIGITS - 1
    is_negative = chars[first - 1] == ord("-")
    start = first - is_negative
    is_integer = ~_IN_NUMBERS[chars[start - 1]] & ~_IN_NUMBERS[chars[stop]] & (chars[first] != ord("0"))
    found = is_integer & _exceeds_64_bits(chars, first, stop - first, is_negative)
    return zip((start[found] - 2).tolist(), (stop[found] - 2).tolist(), strict=True)


def _exceeds_64_bits(chars: np.ndarray, first: np.ndarray, digits: np.ndarray, is_negative: np.ndarray) -> np.ndarray:
    head = np.zeros(len(first), dtype=np.uint64)  # the first MIN_DIGITS digits
    for i in range(MIN_DIGITS):
        head = head * BASE + (chars[first + i] - ord("0"))
    max_head, max_last = divmod(2**64 - 1, BASE)
    last = chars[first + MIN_DIGITS] - ord("0")
    exceeds = (digits > MIN_DIGITS) & ((head > max_head) | ((head == max_head) & (last > max_last)))
    return (digits > MIN_DIGITS + 1) | np.where(is_negative, (digits > MIN_DIGITS) | (head > 2**63), exceeds)
