"""Probes as a kubelet has them, with Kubernetes' defaults where the manifest says nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

import httpx

from tests.deploy.manifests import Manifest
from tests.deploy.simulated_cluster.container import known, port_of

TIMES = {"initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold"}


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe by HTTP."""

    url: str
    delay_s: float
    period_s: float
    timeout_s: float
    successes: int
    failures: int

    @classmethod
    def of(cls, container: Manifest, name: str, address: str) -> Self:
        """Returns a container's probe of that name. Raises AssertionError: it is none that can be played."""
        given = container[name]
        known(given, {"httpGet", *TIMES}, name)
        asks = given["httpGet"]
        known(asks, {"scheme", "host", "port", "path"}, name)
        port = port_of(container, asks["port"])
        assert port is not None, f"{name}: there is no port {asks['port']}"
        scheme = asks.get("scheme", "HTTP")
        assert scheme == "HTTP", f"{name}: {scheme} is not played"
        return cls(
            f"http://{asks.get('host', address)}:{port}{asks.get('path', '/')}",
            given.get("initialDelaySeconds", 0),
            given.get("periodSeconds", 10),
            given.get("timeoutSeconds", 1),
            given.get("successThreshold", 1),
            given.get("failureThreshold", 3),
        )

    async def passes(self, client: httpx.AsyncClient) -> bool:
        """Asks once."""
        try:
            answer = await client.get(self.url, timeout=self.timeout_s)
        except httpx.HTTPError:
            return False
        return httpx.codes.OK <= answer.status_code < httpx.codes.BAD_REQUEST

    async def verdicts(self, client: httpx.AsyncClient, began: float) -> AsyncIterator[bool]:
        """Asks for ever; yields whether all is well, as often as so many in a row have said so as a threshold asks.

        Args:
            client: asks.
            began: when the container did (s, monotonic).
        """
        await asyncio.sleep(max(0.0, began + self.delay_s - time.monotonic()))
        latest, in_a_row = False, 0
        while True:
            passed = await self.passes(client)
            in_a_row = in_a_row + 1 if passed == latest else 1
            latest = passed
            if in_a_row >= (self.successes if passed else self.failures):
                yield passed
            await asyncio.sleep(self.period_s)
