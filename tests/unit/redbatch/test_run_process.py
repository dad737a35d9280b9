"""Which Redis a process takes that is started by hand."""

from __future__ import annotations

import pytest

from redbatch.run_process import _with_redis_of_up
from redbatch.up.run_file import NoUpError

NO_UP = 1
"""No `redbatch up` has this port."""


@pytest.mark.parametrize("name", ["redis_url", "redis_shards"])
def test_a_process_that_has_its_redis_joins_no_up(name: str) -> None:
    """Whether it has one, or one for each shard; without, it looks for the `up` that was chosen."""
    given = {name: "redis://a,redis://b"}
    assert _with_redis_of_up(given, NO_UP) == given
    with pytest.raises(NoUpError):
        _with_redis_of_up({}, NO_UP)
