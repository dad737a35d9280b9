"""Texts and token ids as a sentence-transformers model reads them: with its prompts, and cut to their length."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from gpuworker.backends.base import InputRefused, Token
from shared.codec import decode_ids
from shared.messages import PLAIN, Input, Options

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Encoding, Tokenizer
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class Tokenized:
    """An input as token ids."""

    ids: list[int]

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.ids)


class Reader:
    """A model's tokenizer and prompts.

    Transformers sets how a tokenizer cuts anew in each call, which takes longer than a short text itself. So what
    stands behind it is kept here once for each way to cut.

    Args:
        tokenizer: of the model.
        model: whose prompts and longest sequence count.

    Attributes:
        longest: so many tokens the model reads at most; None for any number.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, model: SentenceTransformer) -> None:
        tokenizer("", truncation="longest_first")
        right, left, whole = (copy.deepcopy(tokenizer.backend_tokenizer) for _ in range(3))
        self.longest: int | None = None
        if right.truncation is not None:
            self.longest = int(right.truncation["max_length"])
            left.enable_truncation(**(right.truncation | {"direction": "left"}))
        whole.no_truncation()
        self._by_cut: dict[str, Tokenizer] = {"right": right, "left": left, "no": whole}
        self._vocabulary = _rows(model) or right.get_vocab_size(with_added_tokens=True)
        self._prompts: dict[str, str] = {name: prompt or "" for name, prompt in model.prompts.items()}
        self._usual = self._prompts.get(model.default_prompt_name or "", "")

    def read(self, inputs: Sequence[Input], options: Options = PLAIN) -> list[Tokenized]:
        """Returns the tokens of each input; those given as ids are taken as they are, special tokens and all.

        Raises:
            InputRefused: there is no such prompt or token, or an input is too long and not to be cut.
        """
        prompt = self._prompt(options.prompt_name)
        tokenizer = self._by_cut[options.truncate]
        texts = [prompt + each for each in inputs if isinstance(each, str)]
        encoded = iter(tokenizer.encode_batch_fast(texts))
        if len(texts) == len(inputs):
            read = [Tokenized(each.ids) for each in encoded]
        elif options.prompt_name is not None:
            raise InputRefused("prompt_name goes before texts, not before token ids.")
        else:
            cut = options.truncate
            ids = (self._ids(each, cut) if isinstance(each, bytes) else next(encoded).ids for each in inputs)
            read = [Tokenized(each) for each in ids]
        if options.truncate == "no":
            self._check(read)
        return read

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns the tokens of each text.

        Raises:
            InputRefused: there is no such prompt, or this is no text.
        """
        prompt = self._prompt(options.prompt_name)
        texts = [prompt + each for each in inputs if isinstance(each, str)]
        if len(texts) < len(inputs):
            raise InputRefused("Send texts to see their tokens.")
        encoded = self._by_cut["no"].encode_batch(texts, add_special_tokens=options.special_tokens)
        return [_tokens(each, text) for each, text in zip(encoded, texts, strict=True)]

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:
        """Returns the text that each input's token ids make.

        Raises:
            InputRefused: there is no such token, or these are no ids.
        """
        ids = [self._ids(each, "no") for each in inputs if isinstance(each, bytes)]
        if len(ids) < len(inputs):
            raise InputRefused("Send token ids to see their text.")
        texts: list[str] = self._by_cut["no"].decode_batch(ids, skip_special_tokens=not options.special_tokens)
        return texts

    def _prompt(self, name: str | None) -> str:
        if name is None:
            return self._usual
        if name not in self._prompts:
            known = ", ".join(sorted(self._prompts)) or "none"
            raise InputRefused(f"prompt_name: this model has no such prompt; it has {known}.")
        return self._prompts[name]

    def _ids(self, given: bytes, cut: str) -> list[int]:
        ids = decode_ids(given)
        if max(ids) >= self._vocabulary:
            raise InputRefused(f"Token ids of this model are below {self._vocabulary}.")
        if self.longest is None or cut == "no":
            return ids
        return ids[-self.longest :] if cut == "left" else ids[: self.longest]

    def _check(self, read: Sequence[Tokenized]) -> None:
        most = max((each.tokens for each in read), default=0)
        if self.longest is not None and most > self.longest:
            raise InputRefused(f"An input has {most} tokens, and this model takes {self.longest}: cut it.")


def _tokens(encoded: Encoding, text: str) -> list[Token]:
    """Returns the tokens of a text, which tell where they are in its UTF-8; the tokenizer counts characters."""
    parts = zip(encoded.ids, encoded.tokens, encoded.special_tokens_mask, encoded.offsets, strict=True)
    at = range(len(text) + 1) if text.isascii() else list(accumulate((len(each.encode()) for each in text), initial=0))
    return [
        Token(id=number, text=token, special=True, start=None, stop=None)
        if special
        else Token(id=number, text=text[start:stop], special=False, start=at[start], stop=at[stop])
        for number, token, special, (start, stop) in parts
    ]


def _rows(model: SentenceTransformer) -> int:
    """Returns for how many tokens a model has vectors: its tokenizer may know of others. 0 where it does not say."""
    try:
        return int(model[0].model.get_input_embeddings().num_embeddings)  # type: ignore[union-attr, operator]
    except AttributeError:
        return 0
