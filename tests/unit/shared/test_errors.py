"""The error tree: its codes, and the way from a code back to the error."""

from __future__ import annotations

import re

import pytest

from shared import errors
from shared.error_tree import error_from_code, error_tree
from shared.errors import InternalError, InvalidRequestError, RedbatchError

TREE = error_tree()
LEAVES = [cls for cls in TREE if not cls.__subclasses__()]


def test_each_leaf_has_a_unique_code() -> None:
    """No two errors that can be raised have the same code."""
    codes = [cls.code for cls in LEAVES]
    assert sorted(set(codes)) == sorted(codes)


def test_a_base_shares_a_code_only_with_its_descendants() -> None:
    """A code never names errors of two branches."""
    for one in TREE:
        for other in TREE:
            assert one.code != other.code or issubclass(one, other) or issubclass(other, one)


@pytest.mark.parametrize("cls", LEAVES)
def test_a_code_leads_back_to_its_error(cls: type[RedbatchError]) -> None:
    """The gateway raises the error that a worker writes into a reply."""
    error = error_from_code(cls.code, "what happened")
    assert type(error) is cls
    assert (error.message, str(error), error.retry_after_s) == ("what happened", "what happened", None)


@pytest.mark.parametrize("cls", TREE)
def test_every_code_is_known(cls: type[RedbatchError]) -> None:
    """The code of a base class leads to an error of that class."""
    assert error_from_code(cls.code, "").code == cls.code
    assert isinstance(error_from_code(cls.code, ""), cls)


@pytest.mark.parametrize("code", ["", "no_such_code", "QUEUE_FULL"])
def test_an_unknown_code_is_an_internal_error(code: str) -> None:
    """A code that this gateway does not know, as from a later worker, becomes InternalError."""
    assert type(error_from_code(code, "")) is InternalError


def test_logs_leave_out_what_a_message_quotes() -> None:
    """What comes from the client, as a field's name; all of a worker's message, which may quote an input."""
    quoting = InvalidRequestError("x y: there is no such field.", quoted="x y")
    assert (quoting.message, quoting.log_message) == ("x y: there is no such field.", "…: there is no such field.")
    assert InvalidRequestError("texts is empty.").log_message == "texts is empty."
    assert error_from_code("input_failed", "cannot read a text").log_message == ""


def test_codes_are_plain_words() -> None:
    """Codes are lower-case words, for clients to compare."""
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", cls.code) for cls in TREE)


def test_the_drawing_shows_the_whole_tree() -> None:
    """The module's drawing shows each class at its depth."""
    drawn = re.findall(r"^([│ ├└─]*)(\w+)", (errors.__doc__ or "").split("\n\n", 1)[1], re.MULTILINE)
    shown = {name: len(indent) // 4 for indent, name in drawn}
    assert shown == {cls.__name__: len(cls.__mro__) - len(RedbatchError.__mro__) for cls in TREE}


def test_the_time_to_wait_is_carried() -> None:
    """An error may carry the time after which to retry."""
    assert errors.QueueFullError("full", retry_after_s=1.5).retry_after_s == 1.5
