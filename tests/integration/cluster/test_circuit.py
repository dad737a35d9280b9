"""A Redis that does not answer counts as unreachable."""

from __future__ import annotations

import asyncio
import time

import pytest

from api.dialects.request import InferenceRequest
from shared.errors import RedisUnreachableError
from tests.integration.cluster.client_pool import is_result_for
from tests.integration.cluster.conftest import StartDispatcher
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.proxy import FaultProxy
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


async def test_a_silent_redis_counts_as_unreachable(
    cluster: GatewayCluster, start_dispatcher: StartDispatcher, proxy: FaultProxy
) -> None:
    """If replies do not arrive but connections stay open, requests are refused at once long before a call times out."""
    dispatcher = await start_dispatcher(proxy.url, redis_timeout_s=30, redis_grace_s=0.5)
    await cluster.start_worker()
    await wait_until(lambda: dispatcher.monitor.missing() == [], "the gateway sees the worker")
    proxy.silent = True

    async def refused_at_once() -> bool:
        start = time.monotonic()
        try:
            async with asyncio.timeout(0.2):
                await dispatcher.answer(InferenceRequest(("a",), 20_000))
        except RedisUnreachableError:
            return time.monotonic() - start < 0.1
        except TimeoutError:
            return False
        return False

    await wait_until(refused_at_once, "requests are refused", timeout_s=20)
    proxy.silent = False
    proxy.cut()

    async def served() -> bool:
        try:
            return is_result_for(await dispatcher.answer(InferenceRequest(("b",), 20_000)), ["b"])
        except RedisUnreachableError:
            return False

    await wait_until(served, "requests are served again")
