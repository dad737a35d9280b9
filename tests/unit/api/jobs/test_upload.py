"""The entries that an upload makes of inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from api.dispatch.splitting import MAX_ENTRY_BYTES
from api.jobs import upload as upload_module
from api.jobs.inputs import EMPTY_TEXT, Pair
from api.jobs.upload import RESULT_BYTES, JobRequest, JobUpload
from api.settings import GatewaySettings
from shared.codec import decode_body
from shared.errors import TooLargeError
from shared.job_uploads import ELEMENT_BYTES, JOB_BYTES, UploadReservation, UploadResult
from shared.keys import BULK
from shared.messages import CLASSIFY, EMBED, EMBED_ALL, EMBED_SPARSE, PREDICT, SCORE, Options
from shared.tenants import Limits, Quota

if TYPE_CHECKING:
    from shared.messages import NewEntry


class FakeStore:
    """A job store without Redis."""

    upload_connection = keys = None


Portions = list[tuple[UploadReservation, list["NewEntry"]]]


@pytest.fixture
def portions(monkeypatch: pytest.MonkeyPatch) -> Portions:
    """The portions that were uploaded: what each reserves, and its entries."""
    uploaded: Portions = []

    async def upload(
        _connection: object, _keys: object, reservation: UploadReservation, entries: list[NewEntry], _failed: object
    ) -> UploadResult:
        uploaded.append((reservation, entries))
        return UploadResult("ok")

    monkeypatch.setattr("shared.job_uploads.upload", upload)
    return uploaded


async def test_entries_of_functions_are_bounded_in_bytes(portions: Portions) -> None:
    """Of 32 inputs of 1.4 MB, an entry has two; an input above the bound has an entry that it does not share."""
    job_upload = JobUpload(cast("Any", FakeStore()), GatewaySettings().jobs, JobRequest("", BULK, op=PREDICT))
    inputs = [b"x" * 1_400_000] * 30 + [b"x" * (MAX_ENTRY_BYTES + 1), b"x"]
    await job_upload.add(inputs)
    uploaded = [each for _, entries in portions for each in entries]
    assert [each.n for each in uploaded] == [2] * 15 + [1, 1]
    assert [each.position for each in uploaded] == [*range(0, 30, 2), 30, 31]


async def test_an_entry_has_one_query(portions: Portions) -> None:
    """Neighbours with the same query share an entry; each pair costs the tokens of both of its texts."""
    job_upload = JobUpload(cast("Any", FakeStore()), GatewaySettings().jobs, JobRequest("", BULK, op=SCORE))
    await job_upload.add([Pair("q" * 40, "a" * 8)] * 30 + [EMPTY_TEXT, Pair("q", "b"), *[Pair("r", "b")] * 32])
    await job_upload._flush()
    [(reservation, entries)] = portions
    assert [(each.position, each.n) for each in entries] == [(0, 30), (31, 1), (32, 32)]
    assert [decode_body(each.body).options.query for each in entries] == ["q" * 40, "q", "r"]
    assert entries[0].cost == 30 * (12 + 4)
    assert reservation.inputs == 63


async def test_a_slow_upload_is_renewed(portions: Portions, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the interval, an upload is renewed also without a new entry; one of which nothing is stored is not."""
    job_upload = JobUpload(cast("Any", FakeStore()), GatewaySettings().jobs, JobRequest("", BULK))
    monkeypatch.setattr(upload_module, "FLUSH_INTERVAL_S", -1.0)
    for texts in (["a"] * 31, ["b"], ["c"], []):
        await job_upload.add(texts)
    assert [(reservation.inputs, len(entries)) for reservation, entries in portions] == [(32, 1), (32, 0), (32, 0)]


@pytest.mark.parametrize(
    ("setting", "maximum", "num_inputs"),
    [("max_owed_inputs", 320, 288), ("max_owed_bytes", 5_000, 640), ("max_upload_bytes", 5_000, 640)],
)
async def test_an_upload_above_the_share_of_a_lone_tenant_is_too_large(
    portions: Portions, setting: str, maximum: int, num_inputs: int
) -> None:
    """It could never be accepted: its error is not temporary, and names the setting. With a larger weight it fits."""
    settings = GatewaySettings.model_validate({setting: maximum}).jobs
    for weight, is_large in ((1.0, True), (4.0, False), (None, False)):
        limits = None if weight is None else Limits(Quota(weight=weight), 0.0)
        job_upload = JobUpload(cast("Any", FakeStore()), settings, JobRequest("a", BULK, limits=limits))
        inputs = ["a"] * num_inputs
        if is_large:
            with pytest.raises(TooLargeError, match=setting):
                await upload_all(job_upload, inputs)
        else:
            await upload_all(job_upload, inputs)
            assert portions


@pytest.mark.parametrize(
    ("op", "dimensions", "per_text"),
    [
        (EMBED, None, 4 * 384),
        (EMBED, 100, 400),
        (EMBED, 500, 4 * 384),
        (EMBED_ALL, None, 2 * 4 * 384),
        (PREDICT, None, 0),
        (SCORE, None, 4),
        (CLASSIFY, None, 4 * 384),
        (EMBED_SPARSE, None, 0),
    ],
)
async def test_what_results_will_take_is_reserved(
    portions: Portions, op: str, dimensions: int | None, per_text: int
) -> None:
    """A vector for each text, or for each of its two tokens; how large outputs will be is not known."""
    request = JobRequest("a", BULK, op=op, options=Options(dimensions=dimensions))
    inputs: list[Any] = [b"1" if op == PREDICT else "a"] * 64
    await upload_all(JobUpload(cast("Any", FakeStore()), GatewaySettings().jobs, request, 384), inputs)
    num_entries = sum(len(entries) for _, entries in portions)
    assert portions[-1][0].results == JOB_BYTES + 64 * (RESULT_BYTES + per_text) + num_entries * ELEMENT_BYTES


async def test_results_above_the_share_of_a_lone_tenant_are_too_large(portions: Portions) -> None:
    """As for the other bounds; the message names the setting."""
    settings = GatewaySettings().jobs
    settings = replace(settings, bounds=settings.bounds._replace(result_bytes=100_000))
    request = JobRequest("a", BULK, limits=Limits(Quota(), 0.0))
    await upload_all(JobUpload(cast("Any", FakeStore()), settings, request, 384), ["a"] * 32)
    assert portions
    with pytest.raises(TooLargeError, match=r"80000 bytes of results.*max_result_ratio"):
        await upload_all(JobUpload(cast("Any", FakeStore()), settings, request, 384), ["a"] * 64)


async def upload_all(job_upload: JobUpload, inputs: list[Any]) -> None:
    """Uploads all inputs."""
    await job_upload.add(inputs)
    await job_upload._flush()
