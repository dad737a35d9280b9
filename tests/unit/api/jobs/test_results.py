"""The portions that results of a job are read in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from api.dialects.request import Labels
from api.dialects.vectors import npy_header
from api.fair_lock import FairLock
from api.http.client_connection import ClientConnection
from api.jobs.result_form import form_of
from api.jobs.results import PORTION_BYTES, PORTION_INPUTS, JobResults
from api.tenants import ShareHolder
from shared.jobs import Job
from shared.keys import BULK
from shared.messages import CLASSIFY, Vectors

if TYPE_CHECKING:
    from shared.messages import Reply

NUM_INPUTS, PER_ENTRY = 5_000, 32


class FakeStore:
    """A job store without Redis."""

    connection = keys = None


@pytest.mark.parametrize("dim", [1, 384])
async def test_a_file_is_read_in_portions_of_bounded_inputs_and_bytes(
    monkeypatch: pytest.MonkeyPatch, dim: int
) -> None:
    """So one portion of scores, of 4 bytes each, does not keep the event loop for long."""
    portions: list[int] = []

    async def replies(_connection: object, _keys: object, job: Job, start: int, stop: int) -> list[Reply]:
        portions.append(stop - start)
        rows = np.arange(start, stop, dtype="<f4").repeat(dim)
        return [Vectors(job.job_id, start, stop - start, dim, rows.tobytes())]

    monkeypatch.setattr("shared.job_results.replies", replies)
    job = Job("a", "done", "", BULK, NUM_INPUTS, NUM_INPUTS, 0, PER_ENTRY, 0, 0, 0, op=CLASSIFY)
    form = form_of(CLASSIFY, Labels(), (), raw=True)
    read = JobResults(cast("Any", FakeStore()), job, form, ClientConnection(), FairLock(), ShareHolder(""))
    file = b"".join([part async for part in read.iter_npy(dim, range(NUM_INPUTS))])
    assert max(portions) <= min(PORTION_INPUTS, PORTION_BYTES // (4 * dim))
    rows = np.frombuffer(file[len(npy_header(NUM_INPUTS, dim)) :], dtype="<f4").reshape(NUM_INPUTS, dim)
    assert (rows == np.arange(NUM_INPUTS)[:, None]).all()
