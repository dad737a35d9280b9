"""The example of a minimal client in docs/architecture.md."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.integration.worker.worker_cluster import WorkerCluster, hash_vectors
from tests.users import as_user

pytestmark = [pytest.mark.redis]

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


async def test_the_documented_client_works(cluster: WorkerCluster) -> None:
    """The documented code, with only port, user and queue changed, gets the vector of its text."""
    await cluster.start_worker()
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    url = urlsplit(as_user(cluster.url, "gateway"))
    # The user may not send the name of its library either (CLIENT SETINFO, Redis 7.2).
    user = f", username='{url.username}', password='{url.password}', driver_info=None" if url.username else ""
    code = code.replace("port=6379", f"port={url.port}{user}").replace("minilm", cluster.queue.keys.queue)
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, code, names)
    assert np.array_equal(names["vectors"], hash_vectors(["Hello, world"]))
