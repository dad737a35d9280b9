"""Pairs of texts for a reranker whose library does all the work: they are not tokenized before they run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import structlog
from transformers import PreTrainedTokenizerFast

from gpuworker.backends.base import UnsupportedError
from gpuworker.backends.prompts import Prompts
from gpuworker.backends.whole_texts import CHARS_PER_TOKEN
from gpuworker.model_spec import one_line
from shared.messages import Input, Options

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder
    from tokenizers import Tokenizer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WholePair:
    """A pair for a model that tokenizes texts itself, with the prompt that goes before it.

    `truncated`: one of its texts was cut to the maximum that options set. What the model cuts, it does not report.
    """

    text: tuple[str, str]
    prompt: str = ""
    truncated: bool = False

    @property
    def tokens(self) -> int:
        """Its approximate length."""
        return max(1, (len(self.prompt) + sum(map(len, self.text))) // CHARS_PER_TOKEN)


class WholePairs:
    """What `tokenize` is for other models: it finds the prompt, cuts texts, and refuses what the model cannot do.

    A template for chats puts its own texts around those of a pair, which share tokens with them: so a query cannot
    be tokenized once for all documents, and a text is cut before its template is applied.
    """

    def __init__(self, model: CrossEncoder) -> None:
        self._prompts = Prompts(model)
        self._takes_instructions = _takes_instructions(model)
        self._model = model

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        """A copy of the model's tokenizer that cuts nothing; None if it has no fast one."""
        tokenizer = getattr(self._model[0], "tokenizer", None)
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            return None
        whole = copy.deepcopy(tokenizer.backend_tokenizer)
        whole.no_truncation()
        whole.no_padding()
        return whole

    def read(self, inputs: Sequence[Input], options: Options) -> list[WholePair]:
        """Returns the pairs of the query with each input.

        Raises:
            InputRefusedError: there is no such prompt, no query, an input is no text, or the model cannot do this.
        """
        if options.query is None or not all(isinstance(each, str) for each in inputs):
            raise UnsupportedError("This model reads pairs of texts: send two texts, no token ids.")
        if options.truncate != "right" or options.max_tokens is not None:
            raise UnsupportedError(
                "This model cuts long pairs itself: leave out truncate=false, the side and the maximum tokens of a "
                "pair. That of a query or of a document is possible."
            )
        prompt = self._prompt_of(options)
        query, is_query_cut = self._cut(options.query, options.max_query_tokens)
        pairs: list[WholePair] = []
        for each in inputs:
            text, is_cut = self._cut(str(each), options.max_document_tokens)
            pairs.append(WholePair((query, text), prompt, is_cut or is_query_cut))
        return pairs

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
