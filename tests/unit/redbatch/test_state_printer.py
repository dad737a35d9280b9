"""A state that a command prints once, or again and again."""

from __future__ import annotations

import pytest

from redbatch import state_printer
from redbatch.state_printer import print_states
from shared.errors import RedisUnreachableError


@pytest.mark.asyncio
@pytest.mark.parametrize(("watch", "shown"), [(False, [1]), (True, [1, 2, 3])])
async def test_states_are_read_once_or_until_an_error(
    watch: bool, shown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each state that was read is shown, also the last one before Redis is gone."""
    monkeypatch.setattr(state_printer, "WATCH_EVERY_S", 0.0)
    states: list[int] = []
    last = 3

    async def read() -> int:
        if len(states) == last:
            raise RedisUnreachableError("Redis is gone.")
        return len(states) + 1

    if watch:
        with pytest.raises(RedisUnreachableError):
            await print_states(read, states.append, watch=True)
    else:
        await print_states(read, states.append, watch=False)
    assert states == shown
