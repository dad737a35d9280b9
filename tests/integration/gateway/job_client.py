"""A client of the jobs of one gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayProcess, vector_bytes

NDJSON = {"content-type": "application/x-ndjson"}


class JobClient:
    """A client of one gateway's jobs."""

    def __init__(self, gateway: GatewayProcess, **headers: str) -> None:
        self.url = gateway.url
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def post(self, body: object, **headers: str) -> httpx.Response:
        """Posts a job as JSON."""
        named = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        return plain_http.post(f"{self.url}/jobs", json=body, headers=named, timeout=30)

    def post_lines(
        self, lines: Sequence[object] | Iterator[bytes], *, query: Mapping[str, object] | None = None, **headers: str
    ) -> httpx.Response:
        """Posts a job as NDJSON, from values or from chunks of bytes, with options in the query."""
        named = self._headers | NDJSON | {name.replace("_", "-"): value for name, value in headers.items()}
        content = (
            lines if isinstance(lines, Iterator) else b"".join(json.dumps(each).encode() + b"\n" for each in lines)
        )
        url = f"{self.url}/jobs" + (f"?{urlencode(query)}" if query else "")
        return plain_http.post(url, content=content, headers=named, timeout=60)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Sends a GET request."""
        return plain_http.get(f"{self.url}{path}", headers=self._headers | headers, timeout=90)

    def delete(self, path: str) -> httpx.Response:
        """Sends a DELETE request."""
        return httpx.delete(
            f"{self.url}{path}", headers=self._headers, verify=plain_http.NO_TLS, trust_env=False, timeout=30
        )

    def job_of(self, answer: httpx.Response) -> dict[str, Any]:
        """Returns the job in an answer, which must be a 202."""
        assert answer.status_code == 202, answer.text
        job: dict[str, Any] = answer.json()
        assert job["status_url"] == f"/jobs/{job['id']}"
        assert job["result_url"] == f"/jobs/{job['id']}/result"
        return job

    def wait_until_ended(self, new_job: dict[str, Any]) -> dict[str, Any]:
        """Waits until a job has ended, and returns it."""
        for _ in range(10):
            job: dict[str, Any] = self.get(new_job["status_url"] + "?wait=10").json()
            if job["status"] not in ("queued", "running"):
                return job
        pytest.fail(f"the job has not ended: {job}")

    def vectors(self, new_job: dict[str, Any]) -> list[bytes]:
        """Returns all vectors of a job, from all pages, each as raw float32."""
        vectors: list[bytes] = []
        url: str | None = new_job["result_url"]
        while url is not None:
            page = self.get(url).json()
            assert page["offset"] == len(vectors)
            vectors += map(vector_bytes, page["embeddings"])
            url = page["next_url"]
        return vectors

    def outputs(self, new_job: dict[str, Any], **query: object) -> list[Any]:
        """Returns all outputs of a job of a function, from all pages."""
        outputs: list[Any] = []
        url: str | None = new_job["result_url"] + "s" + ("?" + urlencode(query) if query else "")
        while url is not None:
            page = self.get(url).json()
            assert page["offset"] == len(outputs)
            outputs += page["outputs"]
            url = page["next_url"]
        return outputs
