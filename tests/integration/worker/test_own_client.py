"""The client of a reader's own, as docs/architecture.md shows it."""

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


async def test_the_client_on_the_page_works(cluster: WorkerCluster) -> None:
    """The code on the page, with another port, user and queue and nothing else changed, gets the vector of its text."""
    await cluster.start_worker()
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    where = urlsplit(as_user(cluster.url, "gateway"))
    # Nor may a user tell Redis which library it is (CLIENT SETINFO, Redis 7.2).
    user = f", username='{where.username}', password='{where.password}', driver_info=None" if where.username else ""
    code = code.replace("port=6379", f"port={where.port}{user}").replace("minilm", cluster.queue.keys.queue)
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, code, names)
    assert np.array_equal(names["vectors"], hash_vectors(["Hello, world"]))
