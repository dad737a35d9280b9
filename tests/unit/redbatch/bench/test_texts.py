"""The texts that are sent."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean, median, quantiles

import pytest

from gpuworker.models import parse_model
from redbatch.bench.texts import (
    MIXES,
    SPECIAL_TOKENS,
    WORDS,
    InvalidTextsError,
    built_in_texts,
    mixed_texts,
    read_texts,
    rotate_texts,
    short_texts,
)

MANY = 20_000


def tokens_of(text: str) -> int:
    """How many tokens a text of the mixes has: each word is one."""
    return len(text.split()) + SPECIAL_TOKENS


@pytest.mark.parametrize("seed", range(3))
def test_short_texts_have_about_15_tokens(seed: int) -> None:
    """From 11 to 19, 15 on average."""
    lengths = [tokens_of(text) for text in islice(short_texts(Random(seed)), MANY)]
    assert (min(lengths), max(lengths)) == (11, 19)
    assert fmean(lengths) == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_mixed_texts_have_the_documented_lengths(seed: int) -> None:
    """39 tokens on average, half under 28, one in twenty over 105, none over 256."""
    lengths = [tokens_of(text) for text in islice(mixed_texts(Random(seed)), MANY)]
    assert fmean(lengths) == pytest.approx(39, abs=1)
    assert median(lengths) == pytest.approx(28, abs=1)
    assert quantiles(lengths, n=20)[-1] == pytest.approx(105, abs=4)
    assert min(lengths) >= 3
    assert max(lengths) <= 256


@pytest.mark.model
def test_each_word_is_one_token_of_the_model() -> None:
    """What the lengths promise holds for MiniLM's own tokenizer."""
    vocabulary = (Path(parse_model("minilm").path) / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(set(WORDS) - set(vocabulary)) == []


@pytest.mark.parametrize("mix", MIXES)
def test_the_seed_decides(mix: str) -> None:
    """The same seed gives the same requests, another gives others."""
    assert built_in_texts(mix, 1, 1) == built_in_texts(mix, 1, 1)
    assert built_in_texts(mix, 1, 1) != built_in_texts(mix, 2, 1)


@pytest.mark.parametrize(("inputs", "requests"), [(1, 4_096), (32, 128), (1_000, 64)])
def test_there_are_far_more_texts_than_in_flight(inputs: int, requests: int) -> None:
    """Each request has its inputs, and none is sent twice before thousands of texts are."""
    pool = built_in_texts("short", 1, inputs)
    assert {len(each) for each in pool} == {inputs}
    assert len(set(pool)) == requests


def test_a_file_has_a_text_a_line(tmp_path: Path) -> None:
    """In its order; empty lines are none."""
    path = tmp_path / "texts.txt"
    path.write_text("first\n\nzwölf\n", encoding="utf-8")
    assert read_texts(path) == ["first", "zwölf"]


def test_a_jsonl_file_has_objects_with_text(tmp_path: Path) -> None:
    """Whatever else they hold, and line breaks in the texts too."""
    path = tmp_path / "texts.jsonl"
    path.write_text('{"id": 1, "text": "two\\nlines"}\n\n{"text": "b"}\n', encoding="utf-8")
    assert read_texts(path) == ["two\nlines", "b"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"\n\n", "contains no text"),
        ("a.txt", b"\xff\xfe", "utf-8"),
        ("a.jsonl", b'{"text": "a"}\nnonsense', "line 2: no JSON"),
        ("a.jsonl", b'{"texts": ["a"]}', "line 1: expected"),
    ],
)
def test_a_bad_file_is_named_with_the_reason(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    """And with the line, where there is one."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidTextsError, match=said) as error:
        read_texts(tmp_path / name)
    assert name in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """One sentence, no traceback."""
    with pytest.raises(InvalidTextsError, match="No such file"):
        read_texts(tmp_path / "nowhere.txt")


@pytest.mark.parametrize(
    ("inputs", "requests"),
    [(1, [("a",), ("b",), ("c",)]), (2, [("a", "b"), ("c", "a"), ("b", "c")]), (3, [("a", "b", "c")])],
)
def test_a_file_is_sent_in_turn(inputs: int, requests: list[tuple[str, ...]]) -> None:
    """Every text is, and as often as any other."""
    assert list(rotate_texts(["a", "b", "c"], inputs)) == requests
