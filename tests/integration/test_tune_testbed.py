"""The private cluster of `redbatch tune`, whose worker changes."""

from __future__ import annotations

import pytest
import redis

from redbatch.tune.testbed import Testbed, TestbedError
from shared.keys import Keys
from tests import plain_http

pytestmark = pytest.mark.slow


def test_a_worker_that_is_gone_counts_no_more() -> None:
    """The one after it is alone at once: it would leave others their share of the entries."""
    with Testbed({"model": "null"}) as testbed:
        for size in ("1", "2"):
            assert testbed.start_worker({"max_batch_size": size}).device == "cpu"
            answer = plain_http.post(f"{testbed.url}/embed", json={"texts": ["a", "b", "c"]})
            assert answer.status_code == 200
            assert int(answer.headers["x-batch-size"]) <= int(size)
        with redis.Redis.from_url(testbed._settings["redis_url"], protocol=2) as client:
            assert client.zcard(Keys("null").workers) == 1


def test_a_setting_that_no_worker_can_run_with_is_told() -> None:
    """In the words of the worker; the cluster goes on with another one."""
    with Testbed({"model": "null"}) as testbed:
        with pytest.raises(TestbedError, match=r"worker-1 cannot run: .*--max-batch-size"):
            testbed.start_worker({"max_batch_size": "0"})
        assert testbed.start_worker({}).start_s > 0
