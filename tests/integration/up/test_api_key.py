"""The API key of `redbatch up`, on each of its Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from redbatch.up.api_key import create_api_key
from redbatch.up.data_dir import DataDir
from shared.keys import API_KEYS
from tests.servers import Server

pytestmark = pytest.mark.redis


def key_ids(server: Server) -> list[str]:
    """Returns the ids of the API keys in a Redis."""
    with redis.Redis.from_url(server.url, protocol=2, decode_responses=True) as client:
        names: Any = client.hkeys(API_KEYS)
    return [each for each in names if len(each) > 8]


async def test_a_kept_key_is_on_each_redis(tmp_path: Path) -> None:
    """The next `up` finds it; a Redis that has lost it, or is new, gets it again. Without a folder it is a new one."""
    with Server(users=False) as one, Server(users=False) as other, DataDir(tmp_path / "data") as folder:
        key = await create_api_key([one.url], "minilm", folder)
        key_id = key.partition(".")[0]
        assert await create_api_key([other.url, one.url], "minilm", folder) == key
        assert await create_api_key([one.url, other.url], "minilm", folder) == key
        assert [key_ids(each) for each in (one, other)] == [[key_id]] * 2
        assert await create_api_key([one.url], "minilm", None) != key
