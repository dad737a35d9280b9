"""Texts for a model whose `encode` does all the work: they are not tokenized before they run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuworker.backends.base import UnsupportedError
from gpuworker.backends.prompts import Prompts
from shared.messages import Input, Options

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CHARS_PER_TOKEN = 4

CUTS_ITSELF = "This model cuts long texts itself, at the right: leave truncate=false and truncation_direction=left out."
"""Of models that run by `encode`."""


@dataclass(frozen=True, slots=True)
class WholeText:
    """An input as text, with the prompt that goes before it. Its number of tokens is an estimate."""

    text: str
    prompt: str = ""

    @property
    def tokens(self) -> int:
        """Its approximate length: English text has about four characters a token."""
        return max(1, (len(self.prompt) + len(self.text)) // CHARS_PER_TOKEN)

    @property
    def truncated(self) -> bool:
        """False: `encode` cuts a text without saying so."""
        return False


class WholeTexts:
    """What `tokenize` is for other models: it finds the prompt, and refuses what `encode` cannot do."""

    def __init__(self, model: SentenceTransformer) -> None:
        self._prompts = Prompts(model)
        self._cuts = model.max_seq_length != math.inf

    def read(self, inputs: Sequence[Input], options: Options) -> list[WholeText]:
        """Returns the inputs as texts with their prompt.

        Raises:
            InputRefusedError: there is no such prompt, `encode` cuts at the right only, or an input is no text.
        """
        prompt = self._prompts.find(options.prompt_name, options.instruction)
        if options.max_tokens is not None:
            raise UnsupportedError("This model cuts long texts itself, at its own maximum length: name no other.")
        if self._cuts and options.truncate != "right":
            raise UnsupportedError(CUTS_ITSELF)
        texts = [WholeText(each, prompt) for each in inputs if isinstance(each, str)]
        if len(texts) < len(inputs):
            raise UnsupportedError("This model takes texts, no token ids.")
        return texts
