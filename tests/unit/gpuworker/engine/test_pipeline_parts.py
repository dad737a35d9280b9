"""The engine's pipeline with a model that returns several parts of a text from one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from gpuworker.backends.base import TextParts
from gpuworker.engine.inference import split_runnable
from gpuworker.engine.work import BatchRow, EntryTask, InputItem
from gpuworker.model_type import ModelType
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.limits import Limits
from shared.messages import (
    DENSE,
    EMBED,
    EMBED_ALL,
    EMBED_PARTS,
    EMBED_SPARSE,
    MULTI_VECTOR,
    PARTS,
    SCORE,
    SPARSE,
    Options,
)
from shared.parts import Parts, decode_parts
from tests.unit.gpuworker.engine.scripted import DIM, PipelineHarness, ScriptedBackend, Text, entry_task, vector_of
from tests.waiting import wait_until


@dataclass
class PartsBackend(ScriptedBackend):
    """A model of three parts: a text's vector, its letters as JSON, and the vectors of its letters."""

    ops: frozenset[str] = frozenset(ModelType("hybrid", parts=PARTS).ops)
    parts: Sequence[str] = PARTS
    normalizes: bool = True
    wanted: list[list[frozenset[str]]] = field(default_factory=list)

    def run_parts(
        self, batch: list[str], wanted: Sequence[frozenset[str]], *, exclusive: bool, raw: bool = False
    ) -> list[TextParts]:
        """Returns what is wanted of each text; one result too few with `!less` in a text."""
        vectors = self.run(batch, exclusive=exclusive, raw=raw)
        self.wanted.append(list(wanted))
        return [
            TextParts(
                np.asarray(vector, dtype=np.float32) if DENSE in parts else None,
                f'"{text}"'.encode() if SPARSE in parts else None,
                np.asarray([vector_of(each) for each in text], dtype=np.float32) if MULTI_VECTOR in parts else None,
            )
            for text, vector, parts in zip(batch, vectors, wanted, strict=False)
        ]


def parts_task(key: str, parts: tuple[str, ...], *texts: str, options: Options | None = None) -> EntryTask:
    """Returns an entry for these parts of its texts."""
    return replace(entry_task(key, *texts), op=EMBED_PARTS, options=(options or Options())._replace(parts=parts))


def op_task(key: str, op: str, *texts: str) -> EntryTask:
    """Returns an entry with this operation."""
    return replace(entry_task(key, *texts), op=op, options=Options())


async def answer(backend: ScriptedBackend, *tasks: EntryTask) -> PipelineHarness:
    """Returns a pipeline that has answered these entries, after a batch that began before they came."""
    backend.may_run.clear()
    harness = PipelineHarness(backend, Limits(max_size=16, max_tokens=1_000))
    harness.add(entry_task("first"))
    await wait_until(lambda: backend.batches == [["first"]], "the first batch runs")
    harness.add(*tasks)
    backend.may_run.set()
    await wait_until(lambda: len(harness.answered_keys) == len(tasks) + 1, "all are answered")
    return harness


def dense_of(text: str) -> bytes:
    """Returns a vector of length 1 as bytes."""
    vector = np.asarray(vector_of(text), dtype=np.float32)
    return (vector / np.linalg.norm(vector)).tobytes()


def multi_vector_of(text: str) -> bytes:
    """Returns the vectors of letters as bytes."""
    return np.asarray([vector_of(each) for each in text], dtype=np.float32).tobytes()


async def test_one_pass_gives_what_all_rows_need() -> None:
    """Whatever their operations are; rows of one text and operation are one, and each entry has its own parts only."""
    backend = PartsBackend()
    harness = await answer(
        backend,
        entry_task("embed", "ab"),
        op_task("sparse", EMBED_SPARSE, "ab"),
        op_task("all", EMBED_ALL, "ab"),
        parts_task("two", (DENSE, SPARSE), "ab", "c"),
        parts_task("tokens", (MULTI_VECTOR,), "ab"),
    )
    assert len(backend.batches) == 2
    assert sorted(map(sorted, backend.wanted[0])) == sorted(
        map(sorted, [{DENSE}, {SPARSE}, {MULTI_VECTOR}, set(PARTS), {DENSE, SPARSE}])
    )
    outputs = {key: task.outputs for key, task in harness.completed.items()}
    assert np.asarray(outputs["embed"][0]).tobytes() == dense_of("ab")
    assert outputs["sparse"] == [b'"ab"']
    assert np.asarray(outputs["all"][0]).tobytes() == multi_vector_of("ab")
    both = [decode_parts(each) for each in outputs["two"] if isinstance(each, bytes)]
    assert both == [Parts(dense_of("ab"), b'"ab"'), Parts(dense_of("c"), b'"c"')]
    assert isinstance(outputs["tokens"][0], bytes)
    assert decode_parts(outputs["tokens"][0]) == Parts(multi_vector=multi_vector_of("ab"), dim=DIM)


async def test_options_of_vectors_are_for_the_dense_part() -> None:
    """Cut to its dimensions, and of length 1 then."""
    options = Options(dimensions=2)
    harness = await answer(PartsBackend(), parts_task("cut", PARTS, "ab", options=options))
    [output] = harness.completed["cut"].outputs
    assert isinstance(output, bytes)
    parts = decode_parts(output)
    cut = np.asarray(vector_of("ab")[:2])
    assert parts.dense is not None
    assert np.frombuffer(parts.dense, dtype=np.float32) == pytest.approx(cut / np.linalg.norm(cut))
    assert parts.multi_vector == multi_vector_of("ab")


async def test_a_part_that_the_model_lacks_is_refused() -> None:
    """With the list of those that it has; and a model may return too few."""
    backend = PartsBackend(parts=(DENSE, SPARSE))
    harness = await answer(
        backend, parts_task("lacks", (DENSE, MULTI_VECTOR), "a"), parts_task("bad", (DENSE, SPARSE), "!less")
    )
    [failure] = [each for result in harness.results for each in result.failures if each.key == "lacks"]
    assert failure.code == "invalid_request"
    assert failure.message == "return: this model does not return multi_vector; it returns dense, sparse."
    assert harness.failures["bad"] == "input_failed"


def test_rows_that_cannot_run_at_once() -> None:
    """Vectors of tokens are apart, unless they are a part; and so are scores of late interaction."""
    tasks = [op_task(op, op, "a") for op in (EMBED, EMBED_ALL, SCORE)]
    rows = [_row(task) for task in tasks]
    for parts, groups in (
        ((), [[EMBED, SCORE], [EMBED_ALL]]),
        (PARTS, [[EMBED, EMBED_ALL], [SCORE]]),
        ((DENSE, SPARSE), [[EMBED], [EMBED_ALL], [SCORE]]),
        ((MULTI_VECTOR,), [[EMBED], [EMBED_ALL], [SCORE]]),
    ):
        found = split_runnable(PartsBackend(parts=parts), rows)
        assert [[row.items[0].task.op for row in group] for group in found] == groups


def _row(task: EntryTask) -> BatchRow:
    encoded = Text("a")
    return BatchRow([InputItem(task, 0, encoded, WaitingInput(1, 0.0, 1.0, 0, task.key, False, 1, 1), 0.0)])
