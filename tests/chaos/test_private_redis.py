"""Another user of the machine, at the Redis of `redbatch up` (F21)."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.chaos import read_as_user
from tests.chaos.scenario import Figures
from tests.integration.up.up_process import ups_in

pytestmark = [pytest.mark.redis, pytest.mark.slow]

ROOT_UID, NOBODY_UID = 0, 65_534


async def read_as(uid: int, url: str, folder: str) -> str:
    """Returns the number of keys that a user reads, or the error."""
    command = [sys.executable, "-I", read_as_user.__file__, url, folder, str(uid)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().strip()


async def test_another_user_reads_the_redis_of_up(tmp_path: Path, rows: list[Figures]) -> None:
    """F21: Redis has no port, but a socket in a folder of mode 0700; root becomes `nobody`, and cannot read it.

    Temporary files are in a folder that all users may enter, as /tmp.
    """
    with tempfile.TemporaryDirectory() as public, ups_in(tmp_path, tmp_path) as start:
        Path(public).chmod(0o755)
        up = await start(TMPDIR=public).wait_until_ready()
        url = up.fact("Redis")
        (server,) = [each for each in up.children() if each not in up.children("redbatch")]
        ports = [each.laddr.port for each in server.net_connections("inet") if each.status == "LISTEN"]
        keys = {uid: await read_as(uid, url, public) for uid in (ROOT_UID, NOBODY_UID) if os.getuid() == ROOT_UID}
        rows.append(
            {"fault": "F21 another user at Redis", "ports": len(ports), "other_user": keys.get(NOBODY_UID, "–")}
        )
        assert ports == []
        path = Path(unquote(urlsplit(url).path))
        assert Path(public) in path.parents
        assert path.parent.stat().st_mode & 0o777 == 0o700
        if keys:
            assert int(keys[ROOT_UID]) > 0
            assert keys[NOBODY_UID] == "PermissionError"
