"""The entries that an upload makes of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from api.dispatch.splitting import MAX_ENTRY_BYTES
from api.jobs.upload import JobRequest, JobUpload
from api.settings import GatewaySettings
from shared.job_uploads import UploadResult
from shared.keys import BULK
from shared.messages import PREDICT

if TYPE_CHECKING:
    from shared.messages import NewEntry


class FakeStore:
    """A job store without Redis."""

    upload_connection = keys = None


async def test_entries_of_functions_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 inputs of 1.4 MB, an entry has two; an input above the bound has an entry that it does not share."""
    uploaded: list[NewEntry] = []

    async def upload(
        _connection: object, _keys: object, _reservation: object, entries: list[NewEntry], _failed: object
    ) -> UploadResult:
        uploaded.extend(entries)
        return UploadResult("ok")

    monkeypatch.setattr("shared.job_uploads.upload", upload)
    job_upload = JobUpload(cast("Any", FakeStore()), GatewaySettings().jobs, JobRequest("", BULK, op=PREDICT))
    inputs = [b"x" * 1_400_000] * 30 + [b"x" * (MAX_ENTRY_BYTES + 1), b"x"]
    await job_upload.add(inputs)
    assert [each.n for each in uploaded] == [2] * 15 + [1, 1]
    assert [each.position for each in uploaded] == [*range(0, 30, 2), 30, 31]
