"""The servers of `make bench-rerank`: Redbatch and Infinity with the same model, each up until the end of a block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from bench.cluster import Cluster, ClusterError, Shape, cluster
from bench.peers.catalogue import INFINITY
from bench.peers.server import Launch, post_body, running
from bench.rerank.load import Task
from bench.rerank.requests import INFINITY as INFINITY_FORM
from bench.rerank.requests import check_scores

ROUTE = "/rerank"
INFINITY_RERANKER = replace(
    INFINITY, command=tuple(word.replace("{minilm}", "{model}") for word in INFINITY.command), path=ROUTE
)


@contextmanager
def redbatch(model: Path) -> Iterator[str]:
    """Runs a gateway, Redis and a worker, and yields the URL of /rerank. Raises ClusterError."""
    with cluster(Shape(str(model))) as up:
        yield url_of(up)


@contextmanager
def infinity(model: Path, programs: Path, probe: Task) -> Iterator[str]:
    """Runs Infinity, whose programs are in a folder, and yields the URL of /rerank.

    Raises:
        PeerError: it does not start, or does not give the scores of the probe.
    """
    configuration = INFINITY_RERANKER.configurations[0]

    def check(url: str) -> None:
        check_scores(INFINITY_FORM, post_body(url, probe.body), probe.expected)

    with running(Launch(INFINITY_RERANKER, configuration, str(model), programs), check) as url:
        yield url


@contextmanager
def pinned_clusters(model: Path, numbers: Sequence[int]) -> Iterator[dict[int, str]]:
    """Runs a cluster of each number of workers; each worker has one core, all its own in a cluster.

    Yields the URL of /rerank by the number of workers. Raises ClusterError.
    """
    with ExitStack() as stack:
        urls = {}
        for number in numbers:
            shape = Shape(str(model), workers=number, settings={"cores": "1"})
            up = stack.enter_context(cluster(shape))
            pin(up)
            urls[number] = url_of(up)
        yield urls


def pin(up: Cluster) -> None:
    """Binds each worker of a cluster, with its engine, to one core, which no other worker of the cluster has.

    Raises ClusterError: there are fewer cores than workers.
    """
    cores, workers = sorted(os.sched_getaffinity(0)), up.processes()["worker"]
    if len(cores) < len(workers):
        raise ClusterError(
            f"{len(workers)} workers on a core each, and this process has {len(cores)}: leave out pinned"
        )
    for core, worker in zip(cores, workers, strict=False):  # cores may be left
        for process in (worker, *worker.children(recursive=True)):
            _bind(process, core)


def _bind(process: psutil.Process, core: int) -> None:
    for thread in process.threads():  # the affinity of a process is that of its first thread alone
        os.sched_setaffinity(thread.id, {core})


def url_of(up: Cluster) -> str:
    """Returns the URL of /rerank of a cluster."""
    return up.url.removesuffix("/embed") + ROUTE
