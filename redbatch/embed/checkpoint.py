"""What is done of a file so far, in a folder beside the output: so that a run that was killed goes on where it was."""

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
    """What is to be done: another one has nothing in common with what lies there."""

    digest: str
    url: str
    column: str
    model: str | None
    slice_rows: int

    @classmethod
    def of(cls, path: Path, url: str, column: str, model: str | None, slice_rows: int) -> TaskIdentity:
        """Returns the task for a file as it is now. Another gateway may have another model."""
        digest = hashlib.sha256(path.suffix.lower().encode())
        with path.open("rb") as file:
            while data := file.read(READ_BYTES):
                digest.update(data)
        return cls(digest.hexdigest(), url, column, model, slice_rows)


class Checkpoint:
    """The slices that are done, each in files of its own.

    Args:
        out: where the output will be.
        task: what is to be done.
    """

    def __init__(self, out: Path, task: TaskIdentity) -> None:
        self._folder = out.with_name(f"{out.name}.part")
        self._task = json.dumps(asdict(task), sort_keys=True)

    def open(self) -> bool:
        """Makes the folder, or goes on in it; returns whether something of this task was there."""
        plan = self._folder / "task.json"
        if plan.is_file() and plan.read_text() == self._task:
            return any(self._folder.glob("*.npy"))
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        plan.write_text(self._task)
        return False

    def name(self, number: int) -> str:
        """Returns an idempotency key for a slice: the same in each run of the same task."""
        return hashlib.sha256(f"{self._task} {number}".encode()).hexdigest()

    def has(self, number: int) -> bool:
        """Whether a slice is done."""
        return self._vectors(number).is_file()

    def keep(
        self, number: int, vectors: NDArray[np.float32], faults: dict[int, str], revisions: Iterable[str] = ()
    ) -> None:
        """Keeps a slice: NaN for the rows that have no vector, by index what is wrong with them, and whose it is."""
        self._about(number).write_text(json.dumps({"faults": list(faults.items()), "revisions": sorted(revisions)}))
        part = self._vectors(number).with_suffix(".tmp")
        with part.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)
        part.replace(self._vectors(number))  # last: what has this name is whole

    def read(self, number: int) -> tuple[NDArray[np.float32], dict[int, str]]:
        """Returns a slice that is done."""
        vectors: NDArray[np.float32] = np.load(self._vectors(number), allow_pickle=False)
        return vectors, dict(json.loads(self._about(number).read_text())["faults"])

    def revisions(self, slices: int) -> set[str]:
        """Returns the revisions of the model that have had a part in any slice, in this run or an earlier one."""
        return {each for number in range(slices) for each in json.loads(self._about(number).read_text())["revisions"]}

    def all(self, slices: int) -> Iterator[tuple[NDArray[np.float32], dict[int, str]]]:
        """Yields all slices in order."""
        return (self.read(number) for number in range(slices))

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _vectors(self, number: int) -> Path:
        return self._folder / f"{number:06}.npy"

    def _about(self, number: int) -> Path:
        return self._folder / f"{number:06}.json"
