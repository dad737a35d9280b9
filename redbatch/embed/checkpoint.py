"""Finished slices of a file, in a folder beside the output, so that a killed run can be resumed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redbatch.embed.readers import InputFile

READ_BYTES = 2**20


class OtherTaskError(Exception):
    """The folder has slices or jobs of another task: of another input, or with other options."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Identifies a task. Slices of a different task cannot be reused.

    `fields` are the options of its jobs, such as `prompt_name`.
    """

    digest: str
    url: str
    column: str
    model: str | None
    slice_rows: int
    fields: Mapping[str, object]
    query: str | None = None
    query_column: str | None = None

    @classmethod
    def of(
        cls, source: InputFile, url: str, model: str | None, slice_rows: int, fields: Mapping[str, object]
    ) -> TaskIdentity:
        """Returns the identity for the current content of a file. It includes `url`: gateways may differ in model."""
        digest = hashlib.sha256(source.format.encode())
        with source.path.open("rb") as file:
            while data := file.read(READ_BYTES):
                digest.update(data)
        query = source.query, source.query_column
        return cls(digest.hexdigest(), url, source.column, model, slice_rows, fields, *query)


class BusyError(Exception):
    """Another process writes this output."""


class Checkpoint:
    """The finished slices of a task, each in two files: vectors and metadata; and the jobs of the others.

    Args:
        out: path of the output.
        task: identity of the task.

    Attributes:
        folder: in which they are.
    """

    def __init__(self, out: Path, task: TaskIdentity) -> None:
        self.folder = out.with_name(f"{out.name}.part")
        self._task = json.dumps(asdict(task), sort_keys=True)
        self._run = ""
        self._lock: int | None = None

    def open(self) -> bool:
        """Creates the folder, or reuses that of the same task; returns whether that has any slices or jobs.

        This process has it for itself until it ends. Raises OtherTaskError, BusyError.
        """
        self._lock_folder()
        task_file = self.folder / "task.json"
        if task_file.is_file():
            content = json.loads(task_file.read_text(encoding="utf-8"))
            if content.get("task") == self._task:
                self._run = content["run"]
                return self.is_used()
        if self.is_used():
            raise OtherTaskError
        self._run = secrets.token_hex(16)
        partial = task_file.with_suffix(".tmp")
        partial.write_text(json.dumps({"task": self._task, "run": self._run}), encoding="utf-8")
        partial.replace(task_file)
        return False

    def _lock_folder(self) -> None:
        """Raises BusyError: another process has the folder."""
        if self._lock is not None:
            return
        self.folder.mkdir(exist_ok=True)
        self._lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError from None

    def is_used(self) -> bool:
        """Returns whether the folder has slices or jobs."""
        return any(self.folder.glob("*.npy")) or any(self.folder.glob("*.job"))

    def idempotency_key(self, number: int) -> str:
        """Returns an idempotency key for a slice, the same until the folder is removed."""
        return hashlib.sha256(f"{self._run} {number}".encode()).hexdigest()

    def has(self, number: int) -> bool:
        """Returns whether a slice is finished."""
        return self._vectors_path(number).is_file()

    def record_job(self, number: int, url: str) -> None:
        """Stores the URL of the job that a slice waits for, before the slice is saved."""
        partial = self._job_path(number).with_suffix(".job.tmp")
        partial.write_text(url, encoding="utf-8")
        partial.replace(self._job_path(number))  # a run that is killed meanwhile leaves no part of it

    def has_job(self, number: int) -> bool:
        """Returns whether a slice has a job, of this run or an earlier one."""
        return self._job_path(number).is_file()

    def jobs(self) -> list[str]:
        """Returns the URLs of the jobs of slices that are not finished. They may have ended."""
        paths = sorted(self.folder.glob("*.job"))
        return [path.read_text(encoding="utf-8") for path in paths if not path.with_suffix(".npy").is_file()]

    def save(
        self,
        number: int,
        vectors: NDArray[np.float32],
        faults: dict[int, str],
        revisions: Iterable[str] = (),
        num_truncated: int = 0,
    ) -> None:
        """Stores a slice: vectors (NaN in rows without one), faults of such rows by index, and facts about the run."""
        metadata = {"faults": list(faults.items()), "revisions": sorted(revisions), "num_truncated": num_truncated}
        self._metadata_path(number).write_text(json.dumps(metadata))
        partial = self._vectors_path(number).with_suffix(".tmp")
        with partial.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)
        partial.replace(self._vectors_path(number))  # last step: a file with this name is complete

    def read(self, number: int) -> tuple[NDArray[np.float32], dict[int, str]]:
        """Returns vectors and faults of a finished slice."""
        vectors: NDArray[np.float32] = np.load(self._vectors_path(number), allow_pickle=False)
        return vectors, dict(self._metadata(number)["faults"])

    def revisions(self, num_slices: int) -> set[str]:
        """Returns the model revisions that computed any of the slices, in this run or an earlier one."""
        return {each for number in range(num_slices) for each in self._metadata(number)["revisions"]}

    def num_truncated(self, num_slices: int) -> int:
        """Returns the number of texts that were truncated, in this run or an earlier one."""
        return sum(self._metadata(number)["num_truncated"] for number in range(num_slices))

    def read_all(self, num_slices: int) -> Iterator[tuple[NDArray[np.float32], dict[int, str]]]:
        """Yields vectors and faults of all slices, in order."""
        return (self.read(number) for number in range(num_slices))

    def remove(self) -> None:
        """Removes the folder, and lets others have it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Lets others have the folder, as the end of this process does."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _metadata(self, number: int) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._metadata_path(number).read_text())
        return content

    def _vectors_path(self, number: int) -> Path:
        return self.folder / f"{number:06}.npy"

    def _metadata_path(self, number: int) -> Path:
        return self.folder / f"{number:06}.json"

    def _job_path(self, number: int) -> Path:
        return self.folder / f"{number:06}.job"
