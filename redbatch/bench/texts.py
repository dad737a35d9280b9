"""The texts of the requests: built-in mixes, generated from a seed, or a file of the user."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

# Each word is one token of BERT's vocabulary, which MiniLM and most similar embedding models share.
_WORDS = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where most know get through back "
    "much before go good new write our used me man too any day same right look think also around another came come "
    "work three word must because does part even place well such here take why things help put years different away "
    "again off went old number great tell men say small every found still between name should home big give air line "
    "set own under read last never us left end along while might next sound below saw something thought both few those "
    "always looked show large often together asked "  # language: a word of the vocabulary
    "house world going want school important until form food keep children feet land side without boy once animals "
    "life enough took sometimes four head above kind began almost live page got "
)
WORDS = tuple(_WORDS.split())
SPECIAL_TOKENS = 2  # the model's tokenizer adds one before and one after a text

SHORT_WORDS = (9, 17)
MIXED_MEAN_TOKENS = 39.0
MIXED_SIGMA = 0.8
MIXED_TOKENS = (3, 256)
"""Lengths of mixed texts are log-normal. With this mean and spread, half of them have under 28 tokens and one in twenty
over 105, like a mix of search queries and documents. 256 tokens is where MiniLM truncates."""

POOL_TEXTS = 4_096
POOL_REQUESTS = 64
"""Minimum number of different texts, or of different requests if requests are large. The requests are sent in rotation;
there are far more of them than are in flight."""


class InvalidTextsError(ValueError):
    """The file cannot be read as texts; the message gives the reason."""


def short_texts(random: Random) -> Iterator[str]:
    """Yields texts of 11 to 19 tokens, 15 on average."""
    while True:
        yield " ".join(random.choices(WORDS, k=random.randint(*SHORT_WORDS)))


def mixed_texts(random: Random) -> Iterator[str]:
    """Yields texts with log-normal lengths, 39 tokens on average."""
    mu = math.log(MIXED_MEAN_TOKENS) - MIXED_SIGMA**2 / 2
    min_tokens, max_tokens = MIXED_TOKENS
    while True:
        tokens = min(max_tokens, max(min_tokens, round(random.lognormvariate(mu, MIXED_SIGMA))))
        yield " ".join(random.choices(WORDS, k=tokens - SPECIAL_TOKENS))


MIXES: dict[str, Callable[[Random], Iterator[str]]] = {"short": short_texts, "mixed": mixed_texts}


def built_in_texts(mix: str, seed: int, inputs: int) -> list[tuple[str, ...]]:
    """Returns the texts of different requests with `inputs` texts each; the same seed gives the same texts."""
    texts = MIXES[mix](Random(seed))  # noqa: S311 - texts, no secrets
    requests = max(POOL_REQUESTS, POOL_TEXTS // inputs)
    return [tuple(islice(texts, inputs)) for _ in range(requests)]


def read_texts(path: Path) -> list[str]:
    """Returns the texts of a file in order, without empty ones. Raises InvalidTextsError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTextsError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if path.suffix == ".jsonl":
        texts = [_parse_json_line(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    else:
        texts = lines
    texts = [text for text in texts if text]
    if not texts:
        raise InvalidTextsError(f"{path}: contains no text")
    return texts


def _parse_json_line(line: str, where: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        raise InvalidTextsError(f"{where}: no JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise InvalidTextsError(f'{where}: expected {{"text": "..."}}')
    text: str = value["text"]
    return text


def rotate_texts(texts: list[str], inputs: int) -> Iterator[tuple[str, ...]]:
    """Yields the texts of requests: the list in rotation, until a request would repeat."""
    total = len(texts)
    for i in range(total // math.gcd(total, inputs)):
        yield tuple(texts[(i * inputs + k) % total] for k in range(inputs))


def request_texts(path: Path | None, mix: str, seed: int, inputs: int) -> Iterable[Sequence[str]]:
    """Returns the texts of requests: from a file, or from a built-in mix. Raises InvalidTextsError."""
    return built_in_texts(mix, seed, inputs) if path is None else rotate_texts(read_texts(path), inputs)
