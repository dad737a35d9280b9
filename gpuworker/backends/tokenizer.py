"""Texts and token ids as a sentence-transformers model reads them: with its prompts, and cut to its maximum length."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Any

from gpuworker.backends.base import InputTooLongError, OneInputError, Token, UnsupportedError
from gpuworker.backends.prompts import Prompts
from shared.codec import decode_ids
from shared.messages import DEFAULT_OPTIONS, Input, Options

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel
    from tokenizers import Encoding, Tokenizer
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class TokenizedInput:
    """An input as token ids; `truncated`: without those beyond the model's maximum.

    Of a pair, `type_ids` are the types of these tokens, which say what belongs to which of its texts.
    """

    ids: list[int]
    truncated: bool = False
    type_ids: Sequence[int] = ()

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.ids)


class ModelTokenizer:
    """A model's tokenizer and prompts.

    In each call Transformers configures again how its tokenizer cuts, which takes longer than a short text itself. So
    this class keeps a copy of the backend tokenizer for each way to cut.

    Args:
        tokenizer: of the model.
        model: provides the prompts and the maximum length.

    Attributes:
        max_tokens: maximum tokens that the model reads of an input; None for any number.
        prompts: names of its prompts, sorted.
        input_names: the features that the model takes.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, model: BaseModel) -> None:
        tokenizer("", truncation="longest_first")
        self._padder = tokenizer
        self.input_names: list[str] = tokenizer.model_input_names
        right, left, whole = (copy.deepcopy(tokenizer.backend_tokenizer) for _ in range(3))
        self.max_tokens: int | None = None
        if right.truncation is not None:
            self.max_tokens = int(right.truncation["max_length"])
            left.enable_truncation(**(right.truncation | {"direction": "left"}))
        whole.no_truncation()
        self._by_cut: dict[str, Tokenizer] = {"right": right, "left": left, "no": whole}
        self._vocabulary = _vocabulary_size(model) or right.get_vocab_size(with_added_tokens=True)
        self._prompts = Prompts(model)
        self._lock = Lock()

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> list[TokenizedInput]:
        """Returns the tokens of each input. Token ids include special tokens: they are only cut.

        Raises:
            InputRefusedError: there is no such prompt, a prompt or a query goes with token ids, or `max_tokens` leaves
                no room beside the special tokens.
            OneInputError: an input has a token that does not exist, or is too long and must not be cut.
        """
        prompt = self._prompts.find(options.prompt_name, options.instruction)
        max_tokens = self._max_tokens(options)
        if options.query is not None:
            tokenized = self._tokenize_pairs(prompt + options.query, inputs, options, max_tokens)
        else:
            tokenized = self._tokenize_texts(prompt, inputs, options, max_tokens)
        if options.truncate == "no":
            _check_length(tokenized, max_tokens)
        return tokenized

    def _tokenize_texts(
        self, prompt: str, inputs: Sequence[Input], options: Options, max_tokens: int | None
    ) -> list[TokenizedInput]:
        texts = [prompt + each for each in inputs if isinstance(each, str)]
        with self._tokenizer_for(options.truncate, max_tokens) as tokenizer:
            encoded = iter(tokenizer.encode_batch_fast(texts))
        if len(texts) == len(inputs):
            return [_tokenized_text(each, max_tokens) for each in encoded]
        if options.prompt_name or options.instruction is not None:
            raise UnsupportedError("prompt_name and instruction go before texts, not before token ids.")
        return [
            self._cut_ids(each, index, options.truncate, max_tokens)
            if isinstance(each, bytes)
            else _tokenized_text(next(encoded), max_tokens)
            for index, each in enumerate(inputs)
        ]

    def _max_tokens(self, options: Options) -> int | None:
        """Returns the maximum tokens of an input: that of the options, if the model's is not lower."""
        if options.max_tokens is None:
            return self.max_tokens
        num_special = self._by_cut["no"].num_special_tokens_to_add(options.query is not None)
        if options.max_tokens <= num_special:
            raise UnsupportedError(
                f"The model adds {num_special} special tokens: allow at least {num_special + 1} tokens."
            )
        return options.max_tokens if self.max_tokens is None else min(options.max_tokens, self.max_tokens)

    @contextmanager
    def _tokenizer_for(self, side: str, max_tokens: int | None) -> Iterator[Tokenizer]:
        """Yields the tokenizer that cuts at this side to this number of tokens."""
        if side == "no" or max_tokens is None or max_tokens == self.max_tokens:
            yield self._by_cut[side]
            return
        with self._lock:
            self._adjusted.enable_truncation(max_tokens, direction=side)
            yield self._adjusted

    @cached_property
    def _adjusted(self) -> Tokenizer:
        """Cuts to a number of tokens that options name: hardly any do, and a copy of a tokenizer takes its memory."""
        return copy.deepcopy(self._by_cut["no"])

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns the tokens of each text, with its prompt, and not cut.

        Raises:
            InputRefusedError: there is no such prompt, or an input is no text.
        """
        prompt = self._prompts.find(options.prompt_name)
        texts = [prompt + each for each in inputs if isinstance(each, str)]
        if len(texts) < len(inputs):
            raise UnsupportedError("Send texts to see their tokens.")
        encoded = self._by_cut["no"].encode_batch(texts, add_special_tokens=options.special_tokens)
        return [_tokens(each, text) for each, text in zip(encoded, texts, strict=True)]

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:
        """Returns the text that each input's token ids make.

        Raises:
            InputRefusedError: an input holds no ids.
            OneInputError: an input has a token that does not exist.
        """
        ids = [self._ids(each, index) for index, each in enumerate(inputs) if isinstance(each, bytes)]
        if len(ids) < len(inputs):
            raise UnsupportedError("Send token ids to see their text.")
        texts: list[str] = self._by_cut["no"].decode_batch(ids, skip_special_tokens=not options.special_tokens)
        return texts

    def _tokenize_pairs(
        self, query: str, inputs: Sequence[Input], options: Options, max_tokens: int | None
    ) -> list[TokenizedInput]:
        """Returns the tokens of each pair of a query with an input; of a long pair, the longer text is cut first.

        Before that, both are cut to the maximum that the options set for each. A prompt counts as part of the query.

        The library cuts a pair of whole texts into all combinations of their parts, whose memory is quadratic. So the
        texts are tokenized apart, the query once, and lose here most of what no pair holds.
        """
        side = options.truncate
        documents = [each for each in inputs if isinstance(each, str)]
        if len(documents) < len(inputs):
            raise UnsupportedError("Send texts: a pair of texts cannot be sent as token ids.")
        first, *seconds = self._by_cut["no"].encode_batch_fast([query, *documents], add_special_tokens=False)
        is_query_cut = _cut(first, options.max_query_tokens, side)
        are_cut = [_cut(each, options.max_document_tokens, side) or is_query_cut for each in seconds]
        first_length = len(first)
        if max_tokens is not None and side != "no":
            _shorten(first, max_tokens + 1, side)
            for second in seconds:
                # The longer text stays the longer one, as it keeps the odd token; those of one length stay so.
                difference = (len(second) > first_length) - (len(second) < first_length)
                _shorten(second, max_tokens + 1 + difference, side)
        with self._tokenizer_for(side, max_tokens) as tokenizer:
            encoded = [tokenizer.post_process(first, second) for second in seconds]
        has_types = "token_type_ids" in self.input_names
        return [
            _tokenized_text(each, max_tokens, each.type_ids if has_types else (), is_cut=is_cut)
            for each, is_cut in zip(encoded, are_cut, strict=True)
        ]

    def _cut_ids(self, data: bytes, index: int, cut: str, max_tokens: int | None) -> TokenizedInput:
        ids = self._ids(data, index)
        if max_tokens is None or cut == "no" or len(ids) <= max_tokens:
            return TokenizedInput(ids)
        return TokenizedInput(ids[-max_tokens:] if cut == "left" else ids[:max_tokens], truncated=True)

    def _ids(self, data: bytes, index: int) -> list[int]:
        ids = decode_ids(data)
        if max(ids) >= self._vocabulary:
            raise OneInputError(UnsupportedError(f"Token ids of this model are below {self._vocabulary}."), index)
        return ids

    def pad(self, sequences: list[list[int]], length: int | None = None) -> dict[str, Any]:
        """Returns sequences as tensors by name, padded to this length, or to that of the longest sequence."""
        if length is None:
            return dict(self._padder.pad({"input_ids": sequences}, padding=True, return_tensors="pt"))
        batch = self._padder.pad({"input_ids": sequences}, padding="max_length", max_length=length, return_tensors="pt")
        return dict(batch)


def _check_length(tokenized: Sequence[TokenizedInput], max_tokens: int | None) -> None:
    for index, each in enumerate(tokenized):
        if max_tokens is not None and each.tokens > max_tokens:
            raise OneInputError(InputTooLongError(each.tokens, max_tokens), index)


def _tokenized_text(
    encoded: Encoding, max_tokens: int | None, type_ids: Sequence[int] = (), *, is_cut: bool = False
) -> TokenizedInput:
    ids = encoded.ids
    # `overflowing` copies what was cut off, so it is read for texts of the maximum length only.
    return TokenizedInput(ids, is_cut or (len(ids) == max_tokens and len(encoded.overflowing) > 0), type_ids)


def _cut(encoded: Encoding, length: int | None, side: str) -> bool:
    """Cuts tokens to a maximum length, if there is one; returns whether there were more."""
    if length is None or len(encoded) <= length:
        return False
    _shorten(encoded, length, "left" if side == "left" else "right")
    return True


def _shorten(encoded: Encoding, length: int, side: str) -> None:
    """Cuts tokens, in two steps: an encoding keeps what it lost in the last one."""
    for each in (length + 1, length):
        encoded.truncate(each, direction=side)


def _tokens(encoded: Encoding, text: str) -> list[Token]:
    """Returns the tokens of a text, with byte offsets in its UTF-8; the tokenizer counts characters."""
    parts = zip(encoded.ids, encoded.tokens, encoded.special_tokens_mask, encoded.offsets, strict=True)
    offsets = (
        range(len(text) + 1) if text.isascii() else list(accumulate((len(each.encode()) for each in text), initial=0))
    )
    return [
        Token(id=number, text=token, special=True, start=None, stop=None)
        if special
        else Token(id=number, text=text[start:stop], special=False, start=offsets[start], stop=offsets[stop])
        for number, token, special, (start, stop) in parts
    ]


def _vocabulary_size(model: BaseModel) -> int:
    """Returns for how many tokens a model has vectors: its tokenizer may have more. 0 if the model does not say."""
    try:
        return int(model[0].model.get_input_embeddings().num_embeddings)  # type: ignore[union-attr, operator]
    except AttributeError:
        return 0
