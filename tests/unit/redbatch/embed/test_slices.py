"""The slices of a file, and the task that a checkpoint belongs to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from redbatch.embed.checkpoint import BusyError, Checkpoint, OtherTaskError, TaskIdentity
from redbatch.embed.readers import TXT, InputFile, InputRow
from redbatch.embed.session import MAX_SLICE_CHARS, slices_of


def test_a_slice_is_bounded_in_rows_and_characters() -> None:
    """It has at most the requested rows, and MAX_SLICE_CHARS characters; a longer text is alone."""
    lengths = [1, 1, 1, MAX_SLICE_CHARS, 1, MAX_SLICE_CHARS * 2, 0]
    rows = (InputRow(i, "x" * length) for i, length in enumerate(lengths))
    assert [[row.line for row in each] for each in slices_of(rows, 2)] == [[0, 1], [2], [3], [4], [5], [6]]
    assert list(slices_of(iter(()), 2)) == []


def identity(path: Path, **fields: object) -> TaskIdentity:
    """Returns the identity of a task with some options."""
    return TaskIdentity.of(InputFile(path, TXT, "text", "a.txt"), "http://gateway", None, 10, fields)


def test_a_task_without_a_query_is_that_of_older_versions(tmp_path: Path) -> None:
    """These knew no queries, so a run that one of them began can go on; with a query it is another task."""
    source = tmp_path / "a.txt"
    source.write_text("a")
    task = identity(source, prompt_name="query")
    known = ("digest", "url", "column", "model", "slice_rows", "fields")
    assert task.dump() == json.dumps({name: getattr(task, name) for name in known}, sort_keys=True)
    assert json.loads(replace(task, query="b").dump())["query"] == "b"


def test_a_folder_belongs_to_one_task(tmp_path: Path) -> None:
    """Other options are another task; its idempotency keys stay until the folder is removed, and then change."""
    source, out = tmp_path / "a.txt", tmp_path / "v.npy"
    source.write_text("a")
    first = Checkpoint(out, identity(source))
    assert not first.open()
    key = first.idempotency_key(0)
    first.record_job(0, "http://gateway/jobs/a")
    with pytest.raises(BusyError):
        Checkpoint(out, identity(source)).open()
    first.close()
    again = Checkpoint(out, identity(source))
    assert again.open()
    assert again.idempotency_key(0) == key
    assert again.jobs() == ["http://gateway/jobs/a"]
    again.close()
    with pytest.raises(OtherTaskError):
        Checkpoint(out, identity(source, prompt_name="query")).open()
    again.save(0, np.zeros((1, 2), dtype="<f4"), {})
    assert again.jobs() == []
    again.remove()
    assert not again.open()
    assert again.idempotency_key(0) != key
