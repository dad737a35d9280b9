"""The ids of dead letters for people: that in the stream of a shard, after the number of the shard. Pure."""

from __future__ import annotations

import re

_SHARD = re.compile(r"([1-9][0-9]{0,2})@(.*)")
_STREAM_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")
"""Only ASCII digits: Redis refuses others."""


def format_letter_id(shard: int, letter_id: str) -> str:
    """Returns the id of a letter: `1@1732190000000-0`; that on the first shard, 0, has no number."""
    return f"{shard}@{letter_id}" if shard else letter_id


def split_letter_id(text: str) -> tuple[int, str]:
    """Returns the number of the shard, and the id in its stream."""
    match = _SHARD.fullmatch(text)
    return (int(match[1]), match[2]) if match else (0, text)


def is_stream_id(text: str) -> bool:
    """Whether this may be the id of a letter in the stream of its shard."""
    return _STREAM_ID.fullmatch(text) is not None


def is_letter_id(text: str) -> bool:
    """Whether this may be the id of a letter for people."""
    return is_stream_id(split_letter_id(text)[1])
