"""How a request becomes entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.request import Asked
from api.dispatch.splitting import MOST_READ, SPECIAL_TOKENS, check_output, estimate_tokens, split
from shared.codec import decode_body, encode_ids
from shared.errors import InvalidRequest, TooLarge
from shared.messages import DECODE, EMBED, EMBED_ALL, TOKENIZE, Heartbeat, Options

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
    for op, entries in ((EMBED, 2), (EMBED_ALL, 3), (TOKENIZE, 3)):  # what may give long answers goes one by one
        drafts, _ = split(Asked(("a", "b", "c"), 1_000, options=options, op=op), 2)
        bodies = [decode_body(draft.body) for draft in drafts]
        assert [(each.op, each.options) for each in bodies] == [(op, options)] * entries


def worker(dim: int, longest: int) -> Heartbeat:
    """Returns the heartbeat of a worker with such a model."""
    return Heartbeat("w", "h", 1, "cpu", "m", dim, "ready", 1.0, 0, 0, 0, max_input_tokens=longest)


@pytest.mark.parametrize(
    ("texts", "longest", "fits"),
    [(("x" * 8_190,), 8_192, True), (("x" * 8_190, ""), 8_192, False), (("x" * 9_000,) * 32, 256, True)],
)
def test_the_vectors_of_tokens_are_bounded(texts: tuple[str, ...], longest: int, fits: bool) -> None:
    """By what the model reads of each text at most: 8,192 times 1,024 float32 are all that may be asked for at once."""
    asked = Asked(texts, 1_000, op=EMBED_ALL)
    if fits:
        check_output(asked, [worker(1_024, longest), worker(0, 0)])
    else:
        with pytest.raises(TooLarge, match="over the limit of 32"):
            check_output(asked, [worker(1_024, longest)])
    check_output(asked, [])
    check_output(asked._replace(op=EMBED), [worker(1_024, longest)])


@pytest.mark.parametrize("op", [TOKENIZE, DECODE])
def test_what_a_tokenizer_is_asked_is_bounded(op: str) -> None:
    """In tokens, of which a text has no more than characters."""
    given = "x" * (MOST_READ // 5 - SPECIAL_TOKENS)
    each = given if op == TOKENIZE else encode_ids([1] * len(given))
    check_output(Asked((each,) * 5, 1_000, op=op), [])
    with pytest.raises(TooLarge, match="500000 tokens"):
        check_output(Asked((each,) * 6, 1_000, op=op), [])
