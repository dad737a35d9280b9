"""The body of POST /jobs."""

from __future__ import annotations

import pytest

from api.dialects.parsing import MAX_PARTS
from api.jobs.schema import parse_job_body
from shared.errors import TooLargeError


@pytest.mark.parametrize("name", [b"x", b"\\u0069nputs", b"inputs"])
def test_the_parts_of_each_body_are_counted(name: bytes) -> None:
    """Neither an unknown field nor an escaped name avoids the bound."""
    body = b'{"' + name + b'": [' + b",".join([b"[]"] * (MAX_PARTS + 1)) + b"]}"
    with pytest.raises(TooLargeError, match="too many"):
        parse_job_body(body)
