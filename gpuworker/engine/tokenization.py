"""The work of a tokenizer: it turns entries into inputs that wait for a batch, or answers those that need no model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import orjson

from gpuworker.backends.base import Backend, UnsupportedError
from gpuworker.engine.model_errors import ModelErrors
from gpuworker.engine.work import BatchResult, EntryTask, InputItem
from gpuworker.policy.composition import WaitingInput
from shared.messages import CLASSIFY, DECODE, EMBED, EMBED_PARTS, EMBED_SPARSE, PREDICT, ROUTES, SCORE

BYTES_PER_ID = 4

MAX_CALL_TEXTS = 256
"""Maximum texts in one tokenizer call, so that the first of many texts need not wait for the last."""

OFFERS = {
    PREDICT: f"This model is a function and returns no vectors: send the request to {ROUTES[PREDICT]}.",
    EMBED: f"This model returns vectors of texts: send the request to {ROUTES[EMBED]}.",
    SCORE: f"This model scores pairs of texts: send the request to {ROUTES[SCORE]}.",
    CLASSIFY: f"This model classifies texts: send the request to {ROUTES[CLASSIFY]}.",
    EMBED_PARTS: "This model returns vectors of tokens: send the request to POST /embed_all.",
    EMBED_SPARSE: f"This model returns sparse vectors of texts: send the request to {ROUTES[EMBED_SPARSE]}.",
}
"""The messages for an operation that a model does not have, by one that it has; the first of these counts."""


def group_calls(tasks: Iterable[EntryTask]) -> Iterator[list[EntryTask]]:
    """Yields entries in their order, in groups of one tokenizer call each.

    A suspect is alone in its call. So is an entry of a user's function, which may take long or end the process.
    """
    group: list[EntryTask] = []
    texts = 0
    for task in tasks:
        apart = task.attempts or task.op == PREDICT or (group and (group[-1].attempts or group[-1].op == PREDICT))
        if group and (apart or texts + len(task.inputs) > MAX_CALL_TEXTS):
            yield group
            group, texts = [], 0
        group.append(task)
        texts += len(task.inputs)
    if group:
        yield group


def run_tokenizer_op(backend: Backend, task: EntryTask, errors: ModelErrors) -> BatchResult:
    """Runs an operation of TOKENIZER_OPS and returns its result."""
    try:
        task.values = _tokenizer_values(backend, task)
    except Exception as error:  # noqa: BLE001 - whatever the tokenizer raises fails this entry alone
        result = BatchResult()
        result.failures.append(errors.record(error, result).of(task))
        return result
    return BatchResult(completed=[task])


def _tokenizer_values(backend: Backend, task: EntryTask) -> list[bytes]:
    """Returns what an operation of TOKENIZER_OPS gives for each input of an entry, as JSON.

    Raises:
        InputRefusedError: the model does not have the operation.
        Exception: any other error of a tokenizer.
    """
    _check_op(backend, task)
    began = time.monotonic()
    if task.op == DECODE:
        values: list[Any] = list(backend.decode(task.inputs, task.options))
        task.tokens = [len(each) // BYTES_PER_ID for each in task.inputs]
    else:
        values = list(backend.show_tokens(task.inputs, task.options))
        task.tokens = [len(each) for each in values]
    encoded = [orjson.dumps(each) for each in values]
    task.tokenized_at = time.monotonic()
    task.tokenize_s = task.tokenized_at - began
    return encoded


def tokenize_tasks(
    backend: Backend, tasks: Sequence[EntryTask]
) -> tuple[list[InputItem], list[tuple[EntryTask, Exception]]]:
    """Returns the inputs of these entries, and the entries that cannot be tokenized with their errors."""
    try:
        return _tokenize(backend, tasks), []
    except Exception as only_error:  # noqa: BLE001 - one of them is the cause: find out which
        if len(tasks) == 1:
            return [], [(tasks[0], only_error)]
        items: list[InputItem] = []
        errors: list[tuple[EntryTask, Exception]] = []
        for task in tasks:
            try:
                items += _tokenize(backend, [task])
            except Exception as error:  # noqa: BLE001 - whatever the tokenizer raises fails this entry alone
                errors.append((task, error))
        return items, errors


def _tokenize(backend: Backend, tasks: Sequence[EntryTask]) -> list[InputItem]:
    """Returns the inputs of these entries, tokenized: those with the same tokenization key in one call.

    Raises:
        InputRefusedError: the model does not have an operation or an option.
        Exception: any other error of a tokenizer.
    """
    began = time.monotonic()
    by_key: dict[object, list[EntryTask]] = {}
    for task in tasks:
        _check_op(backend, task)
        dimensions = task.options.dimensions
        if dimensions is not None and dimensions > backend.dim:
            raise UnsupportedError(f"dimensions: the vectors of this model have {backend.dim}, not {dimensions}.")
        by_key.setdefault(task.tokenizer_key, []).append(task)
    encoded = [
        (group, backend.tokenize([each for task in group for each in task.inputs], group[0].options))
        for group in by_key.values()
    ]
    now = time.monotonic()
    items: list[InputItem] = []
    for group, encoded_inputs in encoded:
        following = iter(encoded_inputs)
        for task in group:
            own = list(islice(following, len(task.inputs)))
            task.tokens, task.tokenize_s, task.tokenized_at = [each.tokens for each in own], now - began, now
            task.truncated = [index for index, each in enumerate(own) if each.truncated]
            number, tokens = len(own), sum(task.tokens)
            for index, each in enumerate(own):
                waiting = WaitingInput(
                    each.tokens, task.since, task.deadline, task.attempts, task.key, task.bulk, number, tokens
                )
                items.append(InputItem(task, index, each, waiting, now))
    return items


def _check_op(backend: Backend, task: EntryTask) -> None:
    """Raises InputRefusedError if the model does not have the operation of an entry."""
    if task.op == EMBED_PARTS and (missing := set(task.options.parts) - set(backend.parts)):
        raise UnsupportedError(
            f"return: this model does not return {', '.join(sorted(missing))}; it returns {', '.join(backend.parts)}."
        )
    if task.op not in backend.ops:
        raise UnsupportedError(next(message for op, message in OFFERS.items() if op in backend.ops))
