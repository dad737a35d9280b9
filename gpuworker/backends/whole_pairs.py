"""Pairs of texts for a reranker whose library does all the work: they are not tokenized before they run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import structlog
from sentence_transformers.base.modules.transformer import ProcessingKwargs, Transformer
from transformers import PreTrainedTokenizerFast

from gpuworker.backends.base import InputTooLongError, OneInputError, UnsupportedError
from gpuworker.backends.prompts import Prompts
from gpuworker.backends.whole_texts import CHARS_PER_TOKEN
from gpuworker.model_spec import one_line
from shared.messages import Input, Options

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder
    from tokenizers import Tokenizer

log = structlog.get_logger()


NO_MAX_LENGTH = 2**31
"""A tokenizer whose files name no maximum length has a number far above this."""

_WHOLE: ProcessingKwargs = {
    "common": {"return_tensors": None},
    "text": {"padding": False, "truncation": False},
    "chat_template": {"truncation": False},
}
"""Arguments with which the library returns all tokens of each pair."""


@dataclass(frozen=True, slots=True)
class WholePair:
    """A pair for a model that tokenizes texts itself, with the prompt that goes before it.

    `truncated`: the model cuts it, or one of its texts was cut to the maximum that options set.
    """

    text: tuple[str, str]
    prompt: str
    tokens: int
    truncated: bool


class WholePairs:
    """What `tokenize` is for other models: it finds the prompt, cuts texts, and refuses what the model cannot do.

    A template for chats puts its own texts around those of a pair, which share tokens with them: so a query cannot
    be tokenized once for all documents, and a text is cut before its template is applied.

    The library cuts pairs without saying so: they are tokenized here to count, and again by the library to run.

    Attributes:
        max_tokens: maximum tokens that the model reads of a pair; None for any number, or if they cannot be counted.
    """

    def __init__(self, model: CrossEncoder) -> None:
        self._prompts = Prompts(model)
        self._takes_instructions = _takes_instructions(model)
        self._module = _with_own_tokenizer(model)
        self.max_tokens = None if self._module is None else _max_tokens(self._module)

    @property
    def _tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, which cuts nothing here; None if it has no fast one."""
        tokenizer = None if self._module is None else self._module.tokenizer
        return tokenizer.backend_tokenizer if isinstance(tokenizer, PreTrainedTokenizerFast) else None

    def read(self, inputs: Sequence[Input], options: Options) -> list[WholePair]:
        """Returns the pairs of the query with each input.

        Raises:
            InputRefusedError: there is no such prompt, no query, an input is no text, or the model cannot do this.
            OneInputError: a pair is too long and must not be cut.
        """
        if options.query is None or not all(isinstance(each, str) for each in inputs):
            raise UnsupportedError("This model reads pairs of texts: send two texts, no token ids.")
        if options.truncate == "left" or options.max_tokens is not None:
            raise UnsupportedError(
                "This model cuts long pairs itself, at the right: leave out the side and the maximum tokens of a pair. "
                "That of a query or of a document is possible."
            )
        prompt = self._prompt_of(options)
        query, is_query_cut = self._cut(options.query, options.max_query_tokens)
        texts = [self._cut(str(each), options.max_document_tokens) for each in inputs]
        lengths = self._count([(query, text) for text, _ in texts], prompt, may_cut=options.truncate != "no")
        pairs: list[WholePair] = []
        for (text, is_text_cut), length in zip(texts, lengths, strict=True):
            tokens = length if self.max_tokens is None else min(length, self.max_tokens)
            pairs.append(WholePair((query, text), prompt, tokens, is_query_cut or is_text_cut or tokens < length))
        return pairs

    def _count(self, pairs: Sequence[tuple[str, str]], prompt: str, *, may_cut: bool) -> list[int]:
        """Returns the number of tokens of each pair, with its template and not cut.

        Raises:
            InputRefusedError: pairs must not be cut, and this model's cannot be counted.
            OneInputError: pairs must not be cut, and one is too long.
        """
        if self._module is None:
            if not may_cut:
                raise UnsupportedError("The tokens of this model cannot be counted before it cuts: leave truncate out.")
            return [max(1, (len(prompt) + sum(map(len, each))) // CHARS_PER_TOKEN) for each in pairs]
        lengths = _lengths(self._module, pairs, prompt)
        for index, length in enumerate(lengths):
            if not may_cut and self.max_tokens is not None and length > self.max_tokens:
                raise OneInputError(InputTooLongError(length, self.max_tokens), index)
        return lengths

    def _prompt_of(self, options: Options) -> str:
        if options.instruction is None:
            return self._prompts.find(options.prompt_name)
        if not self._takes_instructions:
            raise UnsupportedError("instruction: the template of this model has no place for one: leave it out.")
        if options.prompt_name is not None:
            raise UnsupportedError("instruction: it is a prompt; send it, or a prompt_name, but not both.")
        return options.instruction

    def _cut(self, text: str, max_tokens: int | None) -> tuple[str, bool]:
        """Returns a text cut to a number of tokens, and whether it was longer."""
        if max_tokens is None:
            return text, False
        if self._tokenizer is None:
            raise UnsupportedError("This model's tokenizer does not say where tokens are: name no maximum of them.")
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return (text[: offsets[max_tokens - 1][1]], True) if len(offsets) > max_tokens else (text, False)


def _with_own_tokenizer(model: CrossEncoder) -> Transformer | None:
    """Returns the part of a model that tokenizes, with a copy of its tokenizer; None if it is not the library's.

    The library configures its tokenizer in each call, and another thread runs the model.
    """
    first = model[0]
    if not isinstance(first, Transformer) or first.tokenizer is None:
        return None
    module: Transformer = copy.copy(first)
    module.processor = copy.deepcopy(module.processor)
    _lengths(module, [("a", "b")], "")  # configures it once and for all
    return module


def _lengths(module: Transformer, pairs: Sequence[tuple[str, str]], prompt: str) -> list[int]:
    features = module.preprocess(pairs, prompt=prompt, processing_kwargs=_WHOLE)
    return [len(ids) for ids in features["input_ids"]]


def _max_tokens(module: Transformer) -> int | None:
    """Returns to how many tokens the library cuts a pair; None if it does not."""
    options: dict[str, Any] = {}
    for each in ("common", "text", "chat_template"):
        options |= cast("dict[str, Any]", module.processing_kwargs.get(each, {}))
    length: int | None = options.get("max_length", module.max_seq_length)
    return None if length is None or length > NO_MAX_LENGTH else length


def _takes_instructions(model: CrossEncoder) -> bool:
    """Whether the template of a model has a place for a message of the system."""
    if "message" not in getattr(model[0], "modality_config", {}):
        return False
    try:
        plain, instructed = (model.preprocess([("a", "b")], prompt=each)["input_ids"] for each in (None, "c"))
    except Exception as error:  # noqa: BLE001 - a template may refuse such messages by an error of any class
        log.debug("the template of the model takes no message of the system", reason=one_line(error))
        return False
    return bool(plain.tolist() != instructed.tolist())
