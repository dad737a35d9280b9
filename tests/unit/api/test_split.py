"""How a request becomes entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dispatcher import estimate_tokens, split
from shared.codec import decode_body
from shared.errors import InvalidRequest

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40), min_size=1, max_size=70)


@given(texts, st.integers(1, 33))
def test_entries_put_together_are_the_request(inputs: list[str], per_entry: int) -> None:
    """Every input is in one entry, at its place; no entry is over the bound, and only the last may be below it."""
    drafts = split(inputs, per_entry)
    parts = [decode_body(draft.body).inputs for draft in drafts]
    assert [text for part in parts for text in part] == inputs
    assert [draft.n for draft in drafts] == [len(part) for part in parts]
    assert [draft.position for draft in drafts] == list(range(0, len(inputs), per_entry))
    assert all(draft.n == per_entry for draft in drafts[:-1])
    assert 1 <= drafts[-1].n <= per_entry


@given(texts)
def test_the_cost_of_a_request_does_not_depend_on_how_it_is_split(inputs: list[str]) -> None:
    """An entry costs what its inputs cost."""
    assert {sum(draft.cost for draft in split(inputs, each)) for each in (1, 7, 100)} == {
        sum(estimate_tokens(text) for text in inputs)
    }


def test_a_lone_surrogate_is_the_clients_fault() -> None:
    """A text that UTF-8 cannot carry never reaches the queue, and is not repeated."""
    with pytest.raises(InvalidRequest, match="lone surrogate") as caught:
        split(["fine", "secret \ud800"], 1)
    assert "secret" not in caught.value.message
