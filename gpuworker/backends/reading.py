"""Texts and token ids as a sentence-transformers model reads them: with its prompts, and cut to their length."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuworker.backends.base import InputRefused
from shared.codec import decode_ids
from shared.messages import PLAIN, Input, Options

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer
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
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, model: SentenceTransformer) -> None:
        tokenizer("", truncation="longest_first")
        right, left, whole = (copy.deepcopy(tokenizer.backend_tokenizer) for _ in range(3))
        self._longest: int | None = None
        if right.truncation is not None:
            self._longest = int(right.truncation["max_length"])
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
        if self._longest is None or cut == "no":
            return ids
        return ids[-self._longest :] if cut == "left" else ids[: self._longest]

    def _check(self, read: Sequence[Tokenized]) -> None:
        most = max((each.tokens for each in read), default=0)
        if self._longest is not None and most > self._longest:
            raise InputRefused(f"An input has {most} tokens, and this model takes {self._longest}: cut it.")


def _rows(model: SentenceTransformer) -> int:
    """Returns for how many tokens a model has vectors: its tokenizer may know of others. 0 where it does not say."""
    try:
        return int(model[0].model.get_input_embeddings().num_embeddings)  # type: ignore[union-attr, operator]
    except AttributeError:
        return 0
