"""Probes of a simulated kubelet, with Kubernetes' defaults for fields that the manifest omits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

import httpx

from tests.deploy.manifests import Manifest
from tests.deploy.simulated_cluster.container import port_of, require_known_keys

TIMING_KEYS = {"initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold"}


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP probe; its times are in s."""

    url: str
    delay_s: float
    period_s: float
    timeout_s: float
    successes: int
    failures: int

    @classmethod
    def of(cls, container: Manifest, name: str, address: str) -> Self:
        """Returns a container's probe of that name. Raises AssertionError: the probe is not supported."""
        given = container[name]
        require_known_keys(given, {"httpGet", *TIMING_KEYS}, name)
        request = given["httpGet"]
        require_known_keys(request, {"scheme", "host", "port", "path"}, name)
        port = port_of(container, request["port"])
        assert port is not None, f"{name}: there is no port {request['port']}"
        scheme = request.get("scheme", "HTTP")
        assert scheme == "HTTP", f"{name}: {scheme} is not simulated"
        return cls(
            f"http://{request.get('host', address)}:{port}{request.get('path', '/')}",
            given.get("initialDelaySeconds", 0),
            given.get("periodSeconds", 10),
            given.get("timeoutSeconds", 1),
            given.get("successThreshold", 1),
            given.get("failureThreshold", 3),
        )

    async def passes(self, client: httpx.AsyncClient) -> bool:
        """Sends one request; returns whether the probe succeeded."""
        try:
            answer = await client.get(self.url, timeout=self.timeout_s)
        except httpx.HTTPError:
            return False
        return httpx.codes.OK <= answer.status_code < httpx.codes.BAD_REQUEST

    async def results(self, client: httpx.AsyncClient, began: float) -> AsyncIterator[bool]:
        """Probes forever; yields a result each time its threshold of equal results in a row is reached or exceeded.

        Args:
            client: sends the requests.
            began: start of the container (s, monotonic).
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
