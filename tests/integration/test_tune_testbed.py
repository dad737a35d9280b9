"""The private cluster of `redbatch tune`."""

from __future__ import annotations

import pytest
import redis

from redbatch.tune import testbed
from shared.keys import Keys
from tests import plain_http

pytestmark = pytest.mark.slow


def test_a_stopped_worker_counts_no_more() -> None:
    """The next worker is alone at once; otherwise it would leave a share of the entries to the previous one.

    Their Redis is out of reach of other users.
    """
    with testbed.Testbed({"model": "null"}) as cluster:
        for size in ("1", "2"):
            assert cluster.start_worker({"max_batch_size": size}).device == "cpu"
            answer = plain_http.post(f"{cluster.url}/embed", json={"texts": ["a", "b", "c"]})
            assert answer.status_code == 200
            assert int(answer.headers["x-batch-size"]) <= int(size)
        assert cluster._settings["redis_url"].startswith("unix://")
        with redis.Redis.from_url(cluster._settings["redis_url"], protocol=2) as client:
            assert client.zcard(Keys("null").workers) == 1


def test_settings_that_no_worker_can_run_with_are_reported() -> None:
    """The error contains the message of the worker; the cluster continues with another worker."""
    with testbed.Testbed({"model": "null"}) as cluster:
        with pytest.raises(testbed.TestbedError, match=r"worker-1 cannot run: .*--max-batch-size"):
            cluster.start_worker({"max_batch_size": "0"})
        assert cluster.start_worker({}).start_s > 0
