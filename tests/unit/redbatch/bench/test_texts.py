"""Texts of the requests."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean, median, quantiles

import pytest

from gpuworker.model_spec import parse_model
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

NUM_TEXTS = 20_000


def tokens_of(text: str) -> int:
    """Returns the number of tokens of a text of the mixes: each word is one token."""
    return len(text.split()) + SPECIAL_TOKENS


@pytest.mark.parametrize("seed", range(3))
def test_short_texts_have_about_15_tokens(seed: int) -> None:
    """Short texts have 11 to 19 tokens, 15 on average."""
    lengths = [tokens_of(text) for text in islice(short_texts(Random(seed)), NUM_TEXTS)]
    assert (min(lengths), max(lengths)) == (11, 19)
    assert fmean(lengths) == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_mixed_texts_have_the_documented_lengths(seed: int) -> None:
    """Mixed texts have 39 tokens on average; half have under 28, one in twenty over 105, none over 256."""
    lengths = [tokens_of(text) for text in islice(mixed_texts(Random(seed)), NUM_TEXTS)]
    assert fmean(lengths) == pytest.approx(39, abs=1)
    assert median(lengths) == pytest.approx(28, abs=1)
    assert quantiles(lengths, n=20)[-1] == pytest.approx(105, abs=4)
    assert min(lengths) >= 3
    assert max(lengths) <= 256


@pytest.mark.model
def test_each_word_is_one_token_of_the_model() -> None:
    """The lengths are also those of MiniLM's own tokenizer."""
    vocabulary = (Path(parse_model("minilm").path) / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(set(WORDS) - set(vocabulary)) == []


@pytest.mark.parametrize("mix", MIXES)
def test_the_seed_determines_the_requests(mix: str) -> None:
    """The same seed gives the same requests, and another seed others."""
    assert built_in_texts(mix, 1, 1) == built_in_texts(mix, 1, 1)
    assert built_in_texts(mix, 1, 1) != built_in_texts(mix, 2, 1)


@pytest.mark.parametrize(("inputs", "requests"), [(1, 4_096), (32, 128), (1_000, 64)])
def test_requests_rarely_repeat(inputs: int, requests: int) -> None:
    """Each request has its number of texts, and none repeats before thousands of texts are sent."""
    pool = built_in_texts("short", 1, inputs)
    assert {len(each) for each in pool} == {inputs}
    assert len(set(pool)) == requests


def test_a_file_has_a_text_a_line(tmp_path: Path) -> None:
    """Texts are in the order of the file; empty lines are skipped."""
    path = tmp_path / "texts.txt"
    path.write_text("first\n\nzwölf\n", encoding="utf-8")
    assert read_texts(path) == ["first", "zwölf"]


def test_a_jsonl_file_has_objects_with_text(tmp_path: Path) -> None:
    """Objects may have other fields, and texts may contain line breaks."""
    path = tmp_path / "texts.jsonl"
    path.write_text('{"id": 1, "text": "two\\nlines"}\n\n{"text": "b"}\n', encoding="utf-8")
    assert read_texts(path) == ["two\nlines", "b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\n\n", "contains no text"),
        ("a.txt", b"\xff\xfe", "utf-8"),
        ("a.jsonl", b'{"text": "a"}\nnonsense', "line 2: no JSON"),
        ("a.jsonl", b'{"texts": ["a"]}', "line 1: expected"),
    ],
)
def test_an_invalid_file_is_reported_with_the_reason(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    """The message contains the file, the reason, and the line if there is one."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidTextsError, match=message) as error:
        read_texts(tmp_path / name)
    assert name in str(error.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    """The message is one sentence, without a traceback."""
    with pytest.raises(InvalidTextsError, match="No such file"):
        read_texts(tmp_path / "nowhere.txt")


@pytest.mark.parametrize(
    ("inputs", "requests"),
    [(1, [("a",), ("b",), ("c",)]), (2, [("a", "b"), ("c", "a"), ("b", "c")]), (3, [("a", "b", "c")])],
)
def test_a_file_is_sent_in_rotation(inputs: int, requests: list[tuple[str, ...]]) -> None:
    """Every text is sent equally often."""
    assert list(rotate_texts(["a", "b", "c"], inputs)) == requests
