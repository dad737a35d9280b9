"""The way of requests as their spans tell it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import cast

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from shared import jobs
from shared.codec import encode_body
from shared.jobs import JobCapacity, JobSpec
from shared.messages import EMBED, Body, Failure, NewEntry, Options, Vectors
from tests.integration.tracing.conftest import StartTraced
from tests.integration.worker.worker_cluster import WorkerCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
APART_NS = 5_000_000
"""Of two clocks of one machine, of which one is set right meanwhile."""


def ends_of(*spans: ReadableSpan) -> list[int]:
    """Returns when spans began and ended."""
    return [moment for each in spans for moment in (each.start_time or 0, each.end_time or 0)]


def id_of(span: ReadableSpan) -> tuple[int, int]:
    """Returns what names a span everywhere: its trace's id, and its own."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    """Returns the ids of the spans that a span is linked to."""
    return sorted((each.context.trace_id, each.context.span_id) for each in span.links)


def inputs_of(batches: Sequence[ReadableSpan]) -> int:
    """Returns how many inputs some batches had."""
    return sum(cast("int", (each.attributes or {})["redbatch.batch.inputs"]) for each in batches)


async def test_one_request_is_followed_through_all(start_traced: StartTraced, text: str) -> None:
    """From the client's span to the gateway's, the entry's, the batch and the engine's stages, in order of time."""
    stage = await start_traced()
    headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "a=b", "x-request-id": "mine"}
    answer = await stage.client.post("/embed", json={"text": text}, headers=headers)
    assert answer.status_code == httpx.codes.OK
    [batch] = await stage.all_named("process {}")
    [server], [send] = stage.named("POST /embed"), stage.named("send {}")

    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == CLIENT
    assert dict(server.context.trace_state) == {"a": "b"}
    assert send.parent == server.get_span_context()
    assert {f"{id_of(each)[0]:032x}" for each in (server, send, batch)} == {TRACE}
    assert linked(batch) == [id_of(send)]
    assert (server.kind, send.kind, batch.kind) == (SpanKind.SERVER, SpanKind.PRODUCER, SpanKind.CONSUMER)

    below = stage.below(batch)
    settle = f"settle {stage.queue}"
    assert sorted(below) == ["run", settle, "tokenize", "wait"]
    stages = [below[name] for name in ("tokenize", "wait", "run", settle)]
    assert ends_of(*stages) == sorted(ends_of(*stages))
    assert (batch.start_time, batch.end_time) == (stages[0].start_time, stages[-1].end_time)
    assert ends_of(server)[0] <= ends_of(send)[0] <= ends_of(batch)[0] + APART_NS
    assert ends_of(stages[2])[1] <= ends_of(server)[1] + APART_NS


async def test_what_the_spans_say(start_traced: StartTraced, text: str) -> None:
    """The names and values that the conventions have for HTTP and messages, and nothing of any input."""
    stage = await start_traced()
    await stage.client.post("/embed", json={"text": text}, headers={"x-request-id": "mine"})
    [batch] = await stage.all_named("process {}")
    [server], [send] = stage.named("POST /embed"), stage.named("send {}")
    told, said, made = (dict(each.attributes or {}) for each in (server, send, batch))
    times = {told.pop(f"redbatch.{name}") for name in ("queue_ms", "tokenize_ms", "inference_ms", "batch_size")}
    assert all(isinstance(each, float | int) for each in times)
    assert told == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": "/embed",
        "network.protocol.version": "1.1",
        "redbatch.request_id": "mine",
        "server.address": "127.0.0.1",
        "server.port": stage.client.base_url.port,
        "url.path": "/embed",
        "url.scheme": "http",
    }
    common = {"messaging.system": "redis", "messaging.destination.name": stage.queue}
    assert len(cast("str", said.pop("messaging.client.id"))) == 16
    sent = {"redbatch.inputs": 1, "redbatch.lane": "interactive"}
    assert said == {**common, **sent, "messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert made.pop("redbatch.batch.tokens") == made.pop("redbatch.batch.padded_tokens")
    assert made == {
        **common,
        "messaging.client.id": "worker-traced",
        "messaging.consumer.group.name": "workers",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "redbatch.batch.inputs": 1,
        "redbatch.batch.texts": 1,
    }
    services = [each.resource.attributes["service.name"] for each in (server, send, batch)]
    assert services == ["redbatch-gateway", "redbatch-gateway", "redbatch-worker"]
    assert text not in "".join(each.to_json() for each in stage.exporter.get_finished_spans())


async def test_a_batch_is_linked_to_all_its_requests(start_traced: StartTraced) -> None:
    """Two requests run in one batch: it is part of neither, and linked to both."""
    stage = await start_traced(max_batch_size=2, max_batch_wait_ms=5_000)
    await asyncio.gather(*(stage.client.post("/embed", json={"text": each}) for each in ("one", "two")))
    [batch] = await stage.all_named("process {}")
    sends = stage.named("send {}")
    assert len({id_of(each)[0] for each in (batch, *sends)}) == 3
    assert linked(batch) == sorted(map(id_of, sends))
    assert batch.parent is None
    assert (batch.attributes or {})["messaging.batch.message_count"] == 2


async def test_all_entries_of_a_request_name_it(start_traced: StartTraced) -> None:
    """A large request travels as several entries, of which each batch is linked to those that it has."""
    stage = await start_traced({"inputs_per_entry": 2})
    answer = await stage.client.post("/embed", json={"texts": [f"text {i}" for i in range(8)]})
    assert answer.status_code == httpx.codes.OK
    await wait_until(lambda: inputs_of(stage.named("process {}")) == 8, "the batches are told")
    [send], batches = stage.named("send {}"), stage.named("process {}")
    assert (send.attributes or {})["messaging.batch.message_count"] == 4
    assert [each for batch in batches for each in linked(batch)] == [id_of(send)] * 4


async def test_a_job_is_followed(start_traced: StartTraced) -> None:
    """Its entries come into the lane later, and name the span of the job all the same."""
    stage = await start_traced({"inputs_per_entry": 2})
    answer = await stage.client.post("/jobs", json={"texts": [f"text {i}" for i in range(6)]})
    assert answer.status_code == httpx.codes.ACCEPTED
    await wait_until(lambda: inputs_of(stage.named("process {}")) == 6, "the batches are told")
    [server], [send], batches = stage.named("POST /jobs"), stage.named("send {}"), stage.named("process {}")
    assert send.parent == server.get_span_context()
    assert [each for batch in batches for each in linked(batch)] == [id_of(send)] * 3
    shown = f"/jobs/{json.loads(answer.content)['id']}"
    assert (await stage.client.get(shown)).status_code == httpx.codes.OK
    [span] = stage.named("GET /jobs/{id}")
    assert (span.attributes or {})["url.path"] == shown


async def test_inputs_of_a_job_that_fail_are_followed(start_traced: StartTraced, cluster: WorkerCluster) -> None:
    """An entry that fails is told, with its code, though it has no answer: it is taken apart, and each part is told."""
    stage = await start_traced()
    body = encode_body(Body(EMBED, ("a", "b"), Options(prompt_name="none")))
    await jobs.upload(cluster.connection, cluster.keys, "a" * 32, [NewEntry(0, 2, 4, body)])
    making = JobSpec("a" * 32, 1, 0, 2, 2, traceparent=f"00-{TRACE}-{CLIENT}-01")
    assert (await jobs.create(cluster.connection, cluster.keys, making, JobCapacity(100, 100, 1.0))).status == "ok"
    await wait_until(lambda: sum(len(each.links) for each in stage.named("process {}")) == 3, "all parts are told")
    batches = stage.named("process {}")
    assert {(each.attributes or {})["error.type"] for each in batches} == {"invalid_request"}
    assert {each for batch in batches for each in linked(batch)} == {(int(TRACE, 16), int(CLIENT, 16))}


async def test_an_entry_that_nobody_can_read_is_followed(start_traced: StartTraced, cluster: WorkerCluster) -> None:
    """It comes into no batch, and has a span in its request's trace all the same, with the code of its answer."""
    stage = await start_traced()
    asked = cluster.submission(Body(EMBED, ("a",)))._replace(traceparent=f"00-{TRACE}-{CLIENT}-01")
    broken = asked._replace(new_entries=tuple(each._replace(body=b"no body") for each in asked.new_entries))
    await cluster.gateway.add(broken)
    assert isinstance(await cluster.wait_for_reply(asked.request_id), Failure)
    [span] = await stage.all_named("process {}")
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "internal")
    assert linked(span) == [(int(TRACE, 16), int(CLIENT, 16))]
    assert span.parent is not None
    assert sorted(stage.below(span)) == [f"settle {stage.queue}"]


async def test_a_request_that_is_refused_was_not_sent(start_traced: StartTraced) -> None:
    """Its HTTP span has the status; that a client asks too much is no error of the server."""
    stage = await start_traced({"max_queue_inputs": 1})
    refused = await stage.client.post("/embed", json={"texts": ["one", "two"]})
    assert refused.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE
    unknown = await stage.client.post("/embed", json={"text": "a"}, headers={"x-model": "no-such-model"})
    assert unknown.status_code == httpx.codes.NOT_FOUND
    first, second = stage.named("POST /embed")
    assert [(each.attributes or {})["http.response.status_code"] for each in (first, second)] == [413, 404]
    assert [each.status.status_code for each in (first, second)] == [StatusCode.UNSET] * 2
    assert stage.named("send {}") == []


async def test_an_answer_that_comes_too_late_is_an_error(start_traced: StartTraced) -> None:
    """Of the HTTP span, by status and by code; what was sent, was sent."""
    stage = await start_traced(model="simulated:base_ms=400")
    late = await stage.client.post("/embed", json={"text": "a"}, headers={"x-timeout-ms": "100"})
    assert late.status_code == httpx.codes.GATEWAY_TIMEOUT
    [server], [send] = stage.named("POST /embed"), stage.named("send {}")
    assert (server.status.status_code, send.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    told = dict(server.attributes or {})
    assert (told["error.type"], told["redbatch.error.code"]) == ("504", "deadline_exceeded")


async def test_probes_leave_no_spans(start_traced: StartTraced) -> None:
    """They come every second; what is not found has a span that is named by its method alone."""
    stage = await start_traced()
    for path in ("/livez", "/readyz", "/health", "/no/such/path"):
        await stage.client.get(path)
    assert [each.name for each in stage.exporter.get_finished_spans()] == ["GET"]


@pytest.mark.parametrize("traceparent", ["garbage", "00-1-2-01", "naïve"])
async def test_what_is_no_traceparent_is_ignored(
    start_traced: StartTraced, cluster: WorkerCluster, traceparent: str
) -> None:
    """Anybody may write to Redis, or send a header: the entry is answered, and nothing is linked."""
    stage = await start_traced()
    asked = cluster.submission(Body(EMBED, ("by hand",)))._replace(traceparent=traceparent)
    await cluster.gateway.add(asked)
    assert isinstance(await cluster.wait_for_reply(asked.request_id), Vectors)
    headers = {b"traceparent": traceparent.encode()}
    await stage.client.post("/embed", json={"text": "by HTTP"}, headers=headers)
    [batch] = await stage.all_named("process {}")
    [server] = stage.named("POST /embed")
    assert server.parent is None
    assert linked(batch) == list(map(id_of, stage.named("send {}")))


async def test_what_is_not_sampled_is_not_told(start_traced: StartTraced) -> None:
    """A client that says so has its wish at the gateway, and at the worker."""
    stage = await start_traced()
    for flags in ("00", "01"):
        headers = {"traceparent": f"00-{TRACE}-{CLIENT}-{flags}"}
        await stage.client.post("/embed", json={"text": f"text {flags}"}, headers=headers)
    await stage.all_named("process {}")
    assert len(stage.named("POST /embed")) == len(stage.named("send {}")) == len(stage.named("process {}")) == 1
