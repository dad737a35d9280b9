"""How a request is split into entries."""

from __future__ import annotations

from itertools import pairwise
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.dialects.request import InferenceRequest
from api.dispatch.splitting import (
    MAX_ENTRY_BYTES,
    cost_of,
    cost_of_request,
    estimate_tokens,
    merge_failures,
    size_of_request,
    split,
)
from shared.codec import decode_body, encode_binary
from shared.errors import InvalidRequestError
from shared.messages import (
    BYTES,
    CLASSIFY,
    DENSE,
    EMBED,
    EMBED_ALL,
    EMBED_PARTS,
    MULTI_VECTOR,
    PREDICT,
    SCORE,
    SPARSE,
    TOKENIZE,
    Failure,
    Options,
)

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40), min_size=1, max_size=70)


def make_request(inputs: list[str]) -> InferenceRequest:
    """Returns a request for these inputs."""
    return InferenceRequest(tuple(inputs), 1_000)


@given(texts, st.integers(1, 33))
def test_the_entries_together_hold_the_request(inputs: list[str], per_entry: int) -> None:
    """Each input is in one entry, in order; no entry exceeds the bound, and no more entries are used than necessary."""
    new_entries, _ = split(make_request(inputs), per_entry)
    parts = [decode_body(entry.body).inputs for entry in new_entries]
    assert [text for part in parts for text in part] == inputs
    assert [entry.n for entry in new_entries] == [len(part) for part in parts]
    sizes = [entry.n for entry in new_entries]
    assert [entry.position for entry in new_entries] == [sum(sizes[:number]) for number in range(len(sizes))]
    assert (min(sizes) >= 1, max(sizes) <= per_entry) == (True, True)
    assert len(sizes) <= -(-len(inputs) // per_entry)


def test_a_request_is_split_evenly() -> None:
    """Workers share its entries: if the last one were smaller, some would have less to do than others."""
    assert [entry.n for entry in split(make_request(["a"] * 100), 32)[0]] == [25] * 4
    assert [entry.n for entry in split(make_request(["a"] * 33), 32)[0]] == [17, 16]
    assert [entry.n for entry in split(make_request(["a"] * 32), 32)[0]] == [32]


@given(texts)
def test_the_cost_of_a_request_does_not_depend_on_how_it_is_split(inputs: list[str]) -> None:
    """The cost of an entry is the sum of the costs of its inputs."""
    assert {sum(entry.cost for entry in split(make_request(inputs), each)[0]) for each in (1, 7, 100)} == {
        sum(estimate_tokens(text) for text in inputs)
    }


@given(texts, st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(0, 20))
def test_the_query_costs_tokens_with_each_text(inputs: list[str], query: str, max_tokens: int) -> None:
    """A tenant pays for what the model reads: both texts of a pair, as far as they are not cut.

    An entry holds the query once.
    """
    request = InferenceRequest(tuple(inputs), 1_000, options=Options(query=query), op=SCORE)
    entries, _ = split(request, 7, max_tokens)
    pairs = [estimate_tokens(query) + estimate_tokens(text) for text in inputs]
    assert sum(each.cost for each in entries) == sum(min(each, max_tokens or each) for each in pairs)
    assert len(entries) <= -(-len(inputs) // 7)
    assert {decode_body(each.body).options.query for each in entries} == {query}


@given(texts, st.lists(st.none() | st.text("ab", max_size=40), min_size=70, max_size=70), st.booleans())
def test_the_cost_and_the_size_of_a_request_cover_those_of_its_entries(
    inputs: list[str], queries: list[str | None], single: bool
) -> None:
    """Each entry costs its query once for each input, and holds one copy of it."""
    request = InferenceRequest(tuple(inputs), 1_000, op=CLASSIFY)
    if single:
        request = request._replace(options=Options(query=queries[0]))
    else:
        request = request._replace(queries=tuple(queries[: len(inputs)]))
    entries, _ = split(request, 7)
    assert cost_of_request(request) == sum(each.cost for each in entries)
    bodies = [decode_body(each.body) for each in entries]
    in_entries = sum(getsizeof(text) for each in bodies for text in (*each.inputs, each.options.query or ""))
    received = sum(map(getsizeof, (*inputs, *(query or "" for query in request.queries), request.options.query or "")))
    empty = getsizeof("") * (2 * len(inputs) + len(entries) + 1)  # of pairs without a first text
    assert in_entries + received - empty <= size_of_request(request, 7)


def test_a_long_query_is_counted_once_for_each_entry() -> None:
    """So a request of many short texts cannot take many times the memory that it counts for."""
    query = "q" * 10_000
    request = InferenceRequest(("a",) * 70, 1_000, options=Options(query=query), op=SCORE)
    assert size_of_request(request, 7) >= 11 * len(query)
    assert size_of_request(request, 70) < 3 * len(query)


def test_a_lone_surrogate_is_an_invalid_request() -> None:
    """A text that UTF-8 cannot carry never reaches the queue, and the error message does not repeat it."""
    with pytest.raises(InvalidRequestError, match="lone surrogate") as caught:
        split(make_request(["fine", "secret \ud800"]), 1)
    assert "secret" not in caught.value.message


def test_a_partial_request_has_an_entry_for_each_valid_input() -> None:
    """Entries count valid inputs only; each invalid input gets a failure that does not repeat its text.

    Merged with these, the replies to the entries have the indices of the inputs again.
    """
    input_errors = {1: InvalidRequestError("texts[1] is empty.")}
    whole = InferenceRequest(("a", "", "secret \ud800", "b"), 1_000, partial=True, input_errors=input_errors)
    new_entries, failures = split(whole, 32)
    assert [(entry.position, entry.n, decode_body(entry.body).inputs) for entry in new_entries] == [
        (0, 1, ("a",)),
        (1, 1, ("b",)),
    ]
    assert [(each.position, each.code, each.message) for each in failures] == [
        (1, "invalid_request", "texts[1] is empty."),
        (2, "invalid_request", "An input holds a lone surrogate, which is not a character."),
    ]
    replies = [Failure("", entry.position, 1, "any", str(entry.position)) for entry in new_entries]
    merged = merge_failures(replies, failures)
    assert [each.position for each in merged] == [0, 1, 2, 3]
    assert [merged[0], merged[3]] == [replies[0], replies[1]._replace(position=3)]


def test_an_invalid_first_input_leaves_the_first_entry_at_0() -> None:
    """Workers count a request by its entry at position 0."""
    errors = {0: InvalidRequestError("texts[0] is empty.")}
    new_entries, _ = split(InferenceRequest(("", "a"), 1_000, partial=True, input_errors=errors), 32)
    assert [entry.position for entry in new_entries] == [0]


def test_an_operation_and_its_options_go_with_every_entry() -> None:
    """Every entry carries the operation and the options of its request."""
    options = Options("query", special_tokens=False)
    for op, entries in (
        (EMBED, 2),
        (EMBED_ALL, 3),
        (TOKENIZE, 3),
    ):  # operations with long outputs have one input per entry
        new_entries, _ = split(InferenceRequest(("a", "b", "c"), 1_000, options=options, op=op), 2)
        bodies = [decode_body(entry.body) for entry in new_entries]
        assert [(each.op, each.options) for each in bodies] == [(op, options)] * entries


@given(st.lists(st.integers(1, MAX_ENTRY_BYTES // 3), min_size=1, max_size=40), st.integers(1, 33))
@settings(max_examples=20)
def test_the_entries_of_a_function_are_bounded_in_bytes(sizes: list[int], per_entry: int) -> None:
    """Each input is in one entry, in order; none has over MAX_ENTRY_BYTES or `per_entry` inputs; none is too short.

    The cost of an entry is its number of inputs, and its size is counted.
    """
    inputs = tuple(encode_binary(BYTES, bytes(size)) for size in sizes)
    new_entries, _ = split(InferenceRequest(inputs, 1_000, op=PREDICT), per_entry)
    parts = [decode_body(entry.body).inputs for entry in new_entries]
    assert tuple(each for part in parts for each in part) == inputs
    assert [entry.position for entry in new_entries] == [sum(map(len, parts[:i])) for i in range(len(parts))]
    assert [entry.cost for entry in new_entries] == [entry.n for entry in new_entries] == list(map(len, parts))
    assert [entry.counted_bytes for entry in new_entries] == [len(entry.body) for entry in new_entries]
    assert all(sum(map(len, part)) <= MAX_ENTRY_BYTES and len(part) <= per_entry for part in parts)
    for part, following in pairwise(parts):
        assert len(part) == per_entry or sum(map(len, part)) + len(following[0]) > MAX_ENTRY_BYTES


def test_an_input_over_the_bound_of_an_entry_has_its_own() -> None:
    """It is not refused here: the limit of one input is another."""
    large, small = encode_binary(BYTES, bytes(2 * MAX_ENTRY_BYTES)), "1"
    new_entries, _ = split(InferenceRequest((small, large, small, small), 1_000, op=PREDICT), 32)
    assert [(entry.position, entry.n) for entry in new_entries] == [(0, 1), (1, 1), (2, 2)]


def test_texts_count_no_bytes() -> None:
    """Their tokens bound them."""
    assert {entry.counted_bytes for entry in split(make_request(["a", "b"]), 1)[0]} == {0}


@pytest.mark.parametrize(("op", "cost"), [(EMBED, 256 + 3 + 256), (EMBED_ALL, 256), (TOKENIZE, 10_002)])
def test_what_the_model_does_not_read_costs_nothing(op: str, cost: int) -> None:
    """A long text counts as what is left when it is cut: workers measure their rate in costs, and admission uses it."""
    request = InferenceRequest(("x" * 40_000, "four", b"1234" * 5_000), 1_000, op=op)
    new_entries, _ = split(request, 3, 256)
    assert new_entries[0].cost == cost


@pytest.mark.parametrize(
    ("options", "max_tokens", "tokens"),
    [
        ({}, 0, 12 + 22),
        ({}, 30, 30),
        ({"max_document_tokens": 5}, 0, 12 + 5),
        ({"max_query_tokens": 3}, 0, 3 + 22),
        ({"max_tokens": 20}, 0, 20),
        ({"max_tokens": 20}, 30, 20),
        ({"max_tokens": 100}, 30, 30),
        ({"instruction": "i" * 16}, 0, 12 + 6 + 22),
        ({"instruction": "i" * 16, "max_document_tokens": 2, "max_query_tokens": 2}, 30, 2 + 6 + 2),
    ],
)
def test_the_cost_of_pairs_is_what_is_read_of_them(options: dict[str, Any], max_tokens: int, tokens: int) -> None:
    """The query, the instruction and each text, up to their maximum tokens and those of the model."""
    assert cost_of(SCORE, ["a" * 80] * 2, max_tokens, Options(query="q" * 40, **options)) == 2 * tokens


def test_a_text_with_vectors_of_tokens_has_its_own_entry() -> None:
    """Its answer may be long; other parts of several texts travel together."""
    for parts, numbers in (((DENSE, SPARSE), [2, 1]), ((DENSE, MULTI_VECTOR), [1, 1, 1])):
        request = InferenceRequest(("a", "b", "c"), 1_000, op=EMBED_PARTS, options=Options(parts=parts))
        new_entries, _ = split(request, 2)
        assert [each.n for each in new_entries] == numbers
        assert {decode_body(each.body).options.parts for each in new_entries} == {parts}
