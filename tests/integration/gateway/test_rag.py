"""The example of retrieval, run as a user runs it, with an embedding model and a reranker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.scoring_models import build_scoring_model
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.timeout(180)]

EXAMPLE = Path(__file__).parents[3] / "docs/examples/rag.py"
ANIMALS = """The fox is a small animal with a bushy tail that hunts at night.

Owls see well in the dark, and turn their heads almost all the way round."""
KITCHEN = """Bread dough rises because yeast makes gas from sugar.

A sauce thickens when flour and butter are stirred into it."""


async def test_the_passage_that_answers_comes_first(isolated_cluster: GatewayCluster, tmp_path: Path) -> None:
    """Ranked by the cosine; with a reranker, whose head is random here, the same passages have its scores."""
    for name, text in (("animals.md", ANIMALS), ("kitchen.md", KITCHEN), ("long.md", "word " * 900)):
        (tmp_path / name).write_text(text)
    folder = await asyncio.to_thread(build_scoring_model, tmp_path / "ranker")
    gateway, *_ = await asyncio.gather(
        isolated_cluster.start_gateway(all_queues=True),
        isolated_cluster.start_worker("minilm"),
        isolated_cluster.start_worker(str(folder), queue="ranker"),
    )
    for queue in (isolated_cluster.queue, "ranker"):
        await wait_until(lambda queue=queue: gateway.ready_workers(queue) == 1, f"{queue} is ready")  # type: ignore[misc]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(EXAMPLE), "Why does dough rise?", *arguments, "--url", gateway.url]
        return subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)

    files = ("animals.md", "kitchen.md", "long.md")
    found = await asyncio.to_thread(run, *files)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[0].endswith(" kitchen.md")
    assert "yeast makes gas" in found.stdout
    reranked = await asyncio.to_thread(run, *files, "--reranker", "ranker")
    assert reranked.returncode == 0, reranked.stderr
    assert len([line for line in reranked.stdout.splitlines() if line.endswith(".md")]) == 3
    failed = await asyncio.to_thread(run, *files, "--reranker", "nothing")
    assert (failed.returncode, "There is no such model here" in failed.stderr) == (1, True)
