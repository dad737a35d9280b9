"""The spans of a request on its way through gateway, queue, worker and engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import cast

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from shared import job_uploads, jobs
from shared.codec import encode_body
from shared.job_uploads import UploadReservation
from shared.jobs import JobCapacity, JobSpec
from shared.messages import EMBED, Body, Failure, NewEntry, Options, Vectors
from tests.integration.tracing.conftest import StartTraced
from tests.integration.worker.worker_cluster import WorkerCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
MAX_CLOCK_SKEW_NS = 5_000_000
"""Tolerance between two clocks of one machine, one of which may be adjusted meanwhile."""


def times_of(*spans: ReadableSpan) -> list[int]:
    """Returns the start and end times of spans, in nanoseconds."""
    return [time for each in spans for time in (each.start_time or 0, each.end_time or 0)]


def id_of(span: ReadableSpan) -> tuple[int, int]:
    """Returns the global id of a span: its trace id and its span id."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def linked_ids(span: ReadableSpan) -> list[tuple[int, int]]:
    """Returns the sorted ids of the spans that a span is linked to."""
    return sorted((each.context.trace_id, each.context.span_id) for each in span.links)


def inputs_of(batches: Sequence[ReadableSpan]) -> int:
    """Returns the total number of inputs of batches."""
    return sum(cast("int", (each.attributes or {})["redbatch.batch.inputs"]) for each in batches)


@pytest.mark.parametrize(
    ("path", "fields", "model"),
    [("/embed", ("text",), "null"), ("/score", ("text_1", "text_2"), "simulated:labels=1")],
    ids=["embed", "score"],
)
async def test_a_request_has_spans_from_client_to_engine(
    start_traced: StartTraced, text: str, path: str, fields: Sequence[str], model: str
) -> None:
    """The spans of gateway, entry, batch and the engine's stages follow the client's span, in order of time."""
    traced = await start_traced(model=model)
    headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "a=b", "x-request-id": "mine"}
    answer = await traced.client.post(path, json=dict.fromkeys(fields, text), headers=headers)
    assert answer.status_code == httpx.codes.OK
    [batch] = await traced.wait_until_named("process {}")
    [server], [send] = traced.named(f"POST {path}"), traced.named("send {}")

    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == CLIENT
    assert dict(server.context.trace_state) == {"a": "b"}
    assert send.parent == server.get_span_context()
    assert {f"{id_of(each)[0]:032x}" for each in (server, send, batch)} == {TRACE}
    assert linked_ids(batch) == [id_of(send)]
    assert (server.kind, send.kind, batch.kind) == (SpanKind.SERVER, SpanKind.PRODUCER, SpanKind.CONSUMER)

    children = traced.children(batch)
    settle = f"settle {traced.queue}"
    assert sorted(children) == ["run", settle, "tokenize", "wait"]
    stages = [children[name] for name in ("tokenize", "wait", "run", settle)]
    assert times_of(*stages) == sorted(times_of(*stages))
    assert (batch.start_time, batch.end_time) == (stages[0].start_time, stages[-1].end_time)
    assert times_of(server)[0] <= times_of(send)[0] <= times_of(batch)[0] + MAX_CLOCK_SKEW_NS
    assert times_of(stages[2])[1] <= times_of(server)[1] + MAX_CLOCK_SKEW_NS


async def test_spans_have_the_attributes_of_the_conventions(start_traced: StartTraced, text: str) -> None:
    """Spans have the attributes of the semantic conventions for HTTP and messaging, and contain no input."""
    traced = await start_traced()
    await traced.client.post("/embed", json={"text": text}, headers={"x-request-id": "mine"})
    [batch] = await traced.wait_until_named("process {}")
    [server], [send] = traced.named("POST /embed"), traced.named("send {}")
    of_server, of_send, of_batch = (dict(each.attributes or {}) for each in (server, send, batch))
    times = {of_server.pop(f"redbatch.{name}") for name in ("queue_ms", "tokenize_ms", "inference_ms", "batch_size")}
    assert all(isinstance(each, float | int) for each in times)
    assert of_server == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": "/embed",
        "network.protocol.version": "1.1",
        "redbatch.request_id": "mine",
        "server.address": "127.0.0.1",
        "server.port": traced.client.base_url.port,
        "url.path": "/embed",
        "url.scheme": "http",
    }
    common = {"messaging.system": "redis", "messaging.destination.name": traced.queue}
    assert len(cast("str", of_send.pop("messaging.client.id"))) == 16
    custom = {"redbatch.inputs": 1, "redbatch.lane": "interactive"}
    assert of_send == {**common, **custom, "messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert of_batch.pop("redbatch.batch.tokens") == of_batch.pop("redbatch.batch.padded_tokens")
    assert of_batch == {
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
    assert text not in "".join(each.to_json() for each in traced.exporter.get_finished_spans())


async def test_a_batch_is_linked_to_all_its_requests(start_traced: StartTraced) -> None:
    """A batch with entries of two requests belongs to neither trace, and is linked to both."""
    traced = await start_traced(max_batch_size=2, max_batch_wait_ms=5_000)
    await asyncio.gather(*(traced.client.post("/embed", json={"text": each}) for each in ("one", "two")))
    [batch] = await traced.wait_until_named("process {}")
    sends = traced.named("send {}")
    assert len({id_of(each)[0] for each in (batch, *sends)}) == 3
    assert linked_ids(batch) == sorted(map(id_of, sends))
    assert batch.parent is None
    assert (batch.attributes or {})["messaging.batch.message_count"] == 2


async def test_all_entries_of_a_request_are_linked_to_it(start_traced: StartTraced) -> None:
    """If a request is split into several entries, each batch has one link per entry that it contains."""
    traced = await start_traced({"inputs_per_entry": 2})
    answer = await traced.client.post("/embed", json={"texts": [f"text {i}" for i in range(8)]})
    assert answer.status_code == httpx.codes.OK
    await wait_until(lambda: inputs_of(traced.named("process {}")) == 8, "the batches have ended")
    [send], batches = traced.named("send {}"), traced.named("process {}")
    assert (send.attributes or {})["messaging.batch.message_count"] == 4
    assert [each for batch in batches for each in linked_ids(batch)] == [id_of(send)] * 4


async def test_entries_of_a_job_are_linked_to_it(start_traced: StartTraced) -> None:
    """Entries of a job enter the lane later, and their batches are linked to the job's span."""
    traced = await start_traced({"inputs_per_entry": 2})
    answer = await traced.client.post("/jobs", json={"texts": [f"text {i}" for i in range(6)]})
    assert answer.status_code == httpx.codes.ACCEPTED
    await wait_until(lambda: inputs_of(traced.named("process {}")) == 6, "the batches have ended")
    [server], [send], batches = traced.named("POST /jobs"), traced.named("send {}"), traced.named("process {}")
    assert send.parent == server.get_span_context()
    assert [each for batch in batches for each in linked_ids(batch)] == [id_of(send)] * 3
    path = f"/jobs/{json.loads(answer.content)['id']}"
    assert (await traced.client.get(path)).status_code == httpx.codes.OK
    [span] = traced.named("GET /jobs/{id}")
    assert (span.attributes or {})["url.path"] == path


async def test_failed_inputs_of_a_job_are_linked_to_it(start_traced: StartTraced, cluster: WorkerCluster) -> None:
    """An entry of a job that fails has a span with its error code, and so has each part that it is split into."""
    traced = await start_traced()
    body = encode_body(Body(EMBED, ("a", "b"), Options(prompt_name="none")))
    await job_uploads.upload(
        cluster.connection, cluster.keys, UploadReservation("a" * 32, 2), [NewEntry(0, 2, 4, body)]
    )
    spec = JobSpec("a" * 32, 1, 0, 2, 2, traceparent=f"00-{TRACE}-{CLIENT}-01")
    assert (await jobs.create(cluster.connection, cluster.keys, spec, JobCapacity(100, 1.0))).status == "ok"
    await wait_until(lambda: sum(len(each.links) for each in traced.named("process {}")) == 3, "all parts have spans")
    batches = traced.named("process {}")
    assert {(each.attributes or {})["error.type"] for each in batches} == {"invalid_request"}
    assert {each for batch in batches for each in linked_ids(batch)} == {(int(TRACE, 16), int(CLIENT, 16))}


async def test_a_malformed_entry_has_a_span(start_traced: StartTraced, cluster: WorkerCluster) -> None:
    """An entry that cannot be decoded enters no batch, and has a span in its request's trace with the error code."""
    traced = await start_traced()
    submission = cluster.submission(Body(EMBED, ("a",)))._replace(traceparent=f"00-{TRACE}-{CLIENT}-01")
    broken = submission._replace(new_entries=tuple(each._replace(body=b"no body") for each in submission.new_entries))
    await cluster.gateway.add(broken)
    assert isinstance(await cluster.wait_for_reply(submission.request_id), Failure)
    [span] = await traced.wait_until_named("process {}")
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "internal")
    assert linked_ids(span) == [(int(TRACE, 16), int(CLIENT, 16))]
    assert span.parent is not None
    assert sorted(traced.children(span)) == [f"settle {traced.queue}"]


async def test_a_refused_request_has_no_send_span(start_traced: StartTraced) -> None:
    """The HTTP span of a refused request has the status code; the client's fault is not an error of the span."""
    traced = await start_traced({"max_queue_inputs": 1})
    refused = await traced.client.post("/embed", json={"texts": ["one", "two"]})
    assert refused.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE
    unknown = await traced.client.post("/embed", json={"text": "a"}, headers={"x-model": "no-such-model"})
    assert unknown.status_code == httpx.codes.NOT_FOUND
    first, second = traced.named("POST /embed")
    assert [(each.attributes or {})["http.response.status_code"] for each in (first, second)] == [413, 404]
    assert [each.status.status_code for each in (first, second)] == [StatusCode.UNSET] * 2
    assert traced.named("send {}") == []


async def test_an_expired_request_is_an_error_of_the_server(start_traced: StartTraced) -> None:
    """After a 504, the HTTP span has the error's status and code; the send span has no error."""
    traced = await start_traced(model="simulated:base_ms=2000")
    late = await traced.client.post("/embed", json={"text": "a"}, headers={"x-timeout-ms": "1000"})
    assert late.status_code == httpx.codes.GATEWAY_TIMEOUT
    [server], [send] = traced.named("POST /embed"), traced.named("send {}")
    assert (server.status.status_code, send.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    attributes = dict(server.attributes or {})
    assert (attributes["error.type"], attributes["redbatch.error.code"]) == ("504", "deadline_exceeded")


async def test_probes_leave_no_spans(start_traced: StartTraced) -> None:
    """Probes, which come every second, have no spans; an unknown path has a span named by the method only."""
    traced = await start_traced()
    for path in ("/livez", "/readyz", "/health", "/no/such/path"):
        await traced.client.get(path)
    assert [each.name for each in traced.exporter.get_finished_spans()] == ["GET"]


@pytest.mark.parametrize("traceparent", ["garbage", "00-1-2-01", "naïve"])
async def test_a_malformed_traceparent_is_ignored(
    start_traced: StartTraced, cluster: WorkerCluster, traceparent: str
) -> None:
    """With a malformed traceparent in an entry or a header, the entry is answered, and no link or parent is created."""
    traced = await start_traced()
    submission = cluster.submission(Body(EMBED, ("by hand",)))._replace(traceparent=traceparent)
    await cluster.gateway.add(submission)
    assert isinstance(await cluster.wait_for_reply(submission.request_id), Vectors)
    headers = {b"traceparent": traceparent.encode()}
    await traced.client.post("/embed", json={"text": "by HTTP"}, headers=headers)
    [batch] = await traced.wait_until_named("process {}")
    [server] = traced.named("POST /embed")
    assert server.parent is None
    assert linked_ids(batch) == list(map(id_of, traced.named("send {}")))


async def test_unsampled_requests_have_no_spans(start_traced: StartTraced) -> None:
    """If the client's traceparent is not sampled, neither gateway nor worker creates a span."""
    traced = await start_traced()
    for flags in ("00", "01"):
        headers = {"traceparent": f"00-{TRACE}-{CLIENT}-{flags}"}
        await traced.client.post("/embed", json={"text": f"text {flags}"}, headers=headers)
    await traced.wait_until_named("process {}")
    assert len(traced.named("POST /embed")) == len(traced.named("send {}")) == len(traced.named("process {}")) == 1
