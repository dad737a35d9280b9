"""Finished slices of a file, in a folder beside the output, so that a killed run can be resumed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

READ_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Identifies a task. Slices of a different task cannot be reused."""

    digest: str
    url: str
    column: str
    model: str | None
    slice_rows: int

    @classmethod
    def of(cls, path: Path, url: str, column: str, model: str | None, slice_rows: int) -> TaskIdentity:
        """Returns the identity for the current content of a file. It includes `url`: gateways may differ in model."""
        digest = hashlib.sha256(path.suffix.lower().encode())
        with path.open("rb") as file:
            while data := file.read(READ_BYTES):
                digest.update(data)
        return cls(digest.hexdigest(), url, column, model, slice_rows)


class Checkpoint:
    """The finished slices of a task, each in two files: vectors and metadata.

    Args:
        out: path of the output.
        task: identity of the task.
    """

    def __init__(self, out: Path, task: TaskIdentity) -> None:
        self._folder = out.with_name(f"{out.name}.part")
        self._task = json.dumps(asdict(task), sort_keys=True)

    def open(self) -> bool:
        """Creates the folder, or reuses that of the same task; returns whether it already has finished slices."""
        task_file = self._folder / "task.json"
        if task_file.is_file() and task_file.read_text() == self._task:
            return any(self._folder.glob("*.npy"))
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        task_file.write_text(self._task)
        return False

    def idempotency_key(self, number: int) -> str:
        """Returns an idempotency key for a slice, the same in each run of the same task."""
        return hashlib.sha256(f"{self._task} {number}".encode()).hexdigest()

    def has(self, number: int) -> bool:
        """Returns whether a slice is finished."""
        return self._vectors_path(number).is_file()

    def save(
        self, number: int, vectors: NDArray[np.float32], faults: dict[int, str], revisions: Iterable[str] = ()
    ) -> None:
        """Stores a slice: vectors (NaN in rows without one), faults of such rows by index, and model revisions."""
        self._metadata_path(number).write_text(
            json.dumps({"faults": list(faults.items()), "revisions": sorted(revisions)})
        )
        partial = self._vectors_path(number).with_suffix(".tmp")
        with partial.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)
        partial.replace(self._vectors_path(number))  # last step: a file with this name is complete

    def read(self, number: int) -> tuple[NDArray[np.float32], dict[int, str]]:
        """Returns vectors and faults of a finished slice."""
        vectors: NDArray[np.float32] = np.load(self._vectors_path(number), allow_pickle=False)
        return vectors, dict(json.loads(self._metadata_path(number).read_text())["faults"])

    def revisions(self, num_slices: int) -> set[str]:
        """Returns the model revisions that computed any of the slices, in this run or an earlier one."""
        return {
            each
            for number in range(num_slices)
            for each in json.loads(self._metadata_path(number).read_text())["revisions"]
        }

    def read_all(self, num_slices: int) -> Iterator[tuple[NDArray[np.float32], dict[int, str]]]:
        """Yields vectors and faults of all slices, in order."""
        return (self.read(number) for number in range(num_slices))

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _vectors_path(self, number: int) -> Path:
        return self._folder / f"{number:06}.npy"

    def _metadata_path(self, number: int) -> Path:
        return self._folder / f"{number:06}.json"
