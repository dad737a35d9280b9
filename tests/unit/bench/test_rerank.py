"""The requests of `make bench-rerank`, the check of its answers, and its figures."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import psutil
import pytest
import typer

from bench.cluster import ClusterError
from bench.figures import fold
from bench.rerank import servers
from bench.rerank.__main__ import main, pinned_rows, rate_rows
from bench.rerank.load import Result, encode_tasks, send
from bench.rerank.report import table
from bench.rerank.requests import (
    DOCUMENT_TOKENS,
    DOCUMENTS,
    INFINITY,
    REDBATCH,
    Form,
    WrongScoreError,
    check_scores,
    make_requests,
)

SCORES = [0.5, -1.5, 2.0]


def encode_answer(form: Form, scores: Sequence[float]) -> bytes:
    """Returns a server's answer with these scores, the best first."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    ranks = [{"index": index, form.score: scores[index]} for index in order]
    return json.dumps(ranks if form is REDBATCH else {"results": ranks}).encode()


def test_requests_are_different_and_the_same_work() -> None:
    """Each has documents of the same lengths, in another order, and no document occurs twice."""
    requests = make_requests(3)
    lengths = [[len(document.split()) for document in each.documents] for each in requests]
    assert lengths[0] != lengths[1]
    assert sorted(lengths[0]) == sorted(lengths[1]) == sorted(lengths[2])
    assert (min(lengths[0]) + 2, max(lengths[0]) + 2) == DOCUMENT_TOKENS
    assert len({document for each in requests for document in each.documents}) == 3 * DOCUMENTS
    assert len({each.query for each in requests}) == 3


@pytest.mark.parametrize("form", [REDBATCH, INFINITY], ids=["Redbatch", "Infinity"])
def test_each_score_is_that_of_its_pair(form: Form) -> None:
    """A score of another pair of the same request is found too."""
    check_scores(form, encode_answer(form, SCORES), SCORES)
    for wrong in ([0.5, 2.0, -1.5], [0.5, -1.5, 2.0 + 3 * form.tolerance], [0.5, -1.5, float("nan")]):
        with pytest.raises(WrongScoreError, match="not that of its pair"):
            check_scores(form, encode_answer(form, wrong), SCORES)
    for body in (encode_answer(form, SCORES[:2]), b"<html>", b'{"error": "busy"}'):
        with pytest.raises(WrongScoreError, match="no scores of 3 documents"):
            check_scores(form, body, SCORES)


async def test_a_wrong_answer_ends_the_measurement() -> None:
    """The server answers each request with the scores of the first one."""
    requests = make_requests(2)
    tasks = encode_tasks(REDBATCH, requests, [[0.0] * DOCUMENTS, [1.0] * DOCUMENTS])
    body = encode_answer(REDBATCH, tasks[0].expected)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/rerank"
        measured = await asyncio.to_thread(send, url, REDBATCH, tasks[:1], 1)
        assert (measured.pairs, len(measured.latencies_s)) == (DOCUMENTS, 1)
        with pytest.raises(WrongScoreError, match="not that of its pair"):
            await asyncio.to_thread(send, url, REDBATCH, tasks, 2)
    with pytest.raises(ConnectionError, match="does not answer"):
        await asyncio.to_thread(send, url, REDBATCH, tasks[:1], 1)


def test_the_tables_have_the_ratios() -> None:
    """Rates are compared within a round: with the same number of clients, and with those without a server."""
    results = {
        ("redbatch", 8): Result(1.0, [0.5], 90),
        ("offline", 0): Result(1.0, [], 100),
        ("infinity", 8): Result(1.0, [0.9], 60),
        ("infinity", 1): Result(1.0, [0.9], 30),
        ("predict", 0): Result(1.0, [1.0, 1.0], 45),
    }
    pinned = {1: Result(4.0, [2.0, 2.0], 200), 2: Result(2.2, [1.1, 1.1], 200)}
    rows = [*rate_rows(results), *pinned_rows(pinned)]
    lines = table([each.as_json() for each in fold(rows)]).splitlines()
    assert "| Redbatch | 8 | 90.0 | 0.90 | 1.50 | 2.00 | 0.50 |" in lines
    assert "| Infinity | 1 | 30.0 | – | – | – | 0.90 |" in lines
    assert "| offline, sorted by length, without padding | – | 100 | – | – | – | – |" in lines
    assert "| 2 | 1.10 | 0.55 |" in lines


def test_an_unknown_way_is_refused() -> None:
    """Otherwise its tables would lack it, without a word about it."""
    with pytest.raises(typer.BadParameter, match="--only: pined: choose from redbatch, offline, infinity"):
        main(only="redbatch,pined")


def test_workers_without_a_core_each_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are left over would run on all cores."""
    cluster: Any = type("Cluster", (), {"processes": lambda _: {"worker": [psutil.Process()] * 2}})()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    with pytest.raises(ClusterError, match="2 workers on a core each, and this process has 1"):
        servers.pin(cluster)
