"""How a request becomes entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.asked import Asked
from api.drafts import estimate_tokens, split
from shared.codec import decode_body
from shared.errors import InvalidRequest
from shared.messages import TOKENIZE, Options

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40), min_size=1, max_size=70)


def asked(inputs: list[str]) -> Asked:
    """Returns a request for these."""
    return Asked(tuple(inputs), 1_000)


@given(texts, st.integers(1, 33))
def test_entries_put_together_are_the_request(inputs: list[str], per_entry: int) -> None:
    """Every input is in one entry, at its place; no entry is over the bound, and only the last may be below it."""
    drafts, _ = split(asked(inputs), per_entry)
    parts = [decode_body(draft.body).inputs for draft in drafts]
    assert [text for part in parts for text in part] == inputs
    assert [draft.n for draft in drafts] == [len(part) for part in parts]
    assert [draft.position for draft in drafts] == list(range(0, len(inputs), per_entry))
    assert all(draft.n == per_entry for draft in drafts[:-1])
    assert 1 <= drafts[-1].n <= per_entry


@given(texts)
def test_the_cost_of_a_request_does_not_depend_on_how_it_is_split(inputs: list[str]) -> None:
    """An entry costs what its inputs cost."""
    assert {sum(draft.cost for draft in split(asked(inputs), each)[0]) for each in (1, 7, 100)} == {
        sum(estimate_tokens(text) for text in inputs)
    }


def test_a_lone_surrogate_is_the_clients_fault() -> None:
    """A text that UTF-8 cannot carry never reaches the queue, and is not repeated."""
    with pytest.raises(InvalidRequest, match="lone surrogate") as caught:
        split(asked(["fine", "secret \ud800"]), 1)
    assert "secret" not in caught.value.message


def test_a_partial_request_has_an_entry_for_each_input_that_can_have_one() -> None:
    """At its index; of the others it is said what is wrong, and nothing of their text."""
    refused = {1: InvalidRequest("texts[1] is empty.")}
    whole = Asked(("a", "", "secret \ud800", "b"), 1_000, partial=True, refused=refused)
    drafts, failures = split(whole, 32)
    assert [(draft.position, draft.n, decode_body(draft.body).inputs) for draft in drafts] == [
        (0, 1, ("a",)),
        (3, 1, ("b",)),
    ]
    assert [(each.position, each.code, each.message) for each in failures] == [
        (1, "invalid_request", "texts[1] is empty."),
        (2, "invalid_request", "An input holds a lone surrogate, which is no character."),
    ]


def test_an_operation_and_its_options_go_with_every_entry() -> None:
    """Whatever is to be done is done to all."""
    options = Options("query", special_tokens=False)
    drafts, _ = split(Asked(("a", "b", "c"), 1_000, options=options, op=TOKENIZE), 2)
    bodies = [decode_body(draft.body) for draft in drafts]
    assert [(each.op, each.options) for each in bodies] == [(TOKENIZE, options)] * 2
