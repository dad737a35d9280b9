"""The prompts of a sentence-transformers model: texts that go before inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuworker.backends.base import UnsupportedError

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel


_TASK = re.compile(r"(?P<head>Instruct: ?|<instruct>)[^\n]*(?P<tail>\n.*)", re.DOTALL)
"""A prompt that says what the model is to do, as `Instruct: ...\nQuery: `: an instruction takes the place of that."""


class Prompts:
    """A model's prompts by name, and the default one.

    Attributes:
        names: sorted.
        empty: the names of those without a text, which change nothing: the library adds some to each model.
    """

    def __init__(self, model: BaseModel) -> None:
        self._by_name: dict[str, str] = {name: prompt or "" for name, prompt in model.prompts.items()}
        self.names: Sequence[str] = sorted(self._by_name)
        self.empty: Sequence[str] = [name for name in self.names if not self._by_name[name]]
        self._default = self._by_name.get(model.default_prompt_name or "", "")

    def find(self, name: str | None, instruction: str | None = None) -> str:
        """Returns a prompt: for None the default one, for "" none.

        With an instruction, that takes the place of the task in the prompt. If there is no name, and no task in the
        default prompt, the prompt is the first of the model's that has one.

        Raises:
            InputRefusedError: the model lacks the prompt, or the prompt has no task.
        """
        if name and name not in self._by_name:
            known = ", ".join(self.names) or "none"
            raise UnsupportedError(f"prompt_name: this model has no such prompt; it has {known}.")
        prompt = self._default if name is None else self._by_name.get(name, "")
        return prompt if instruction is None else self._instruct(prompt, instruction, may_choose=name is None)

    def _instruct(self, prompt: str, instruction: str, *, may_choose: bool) -> str:
        prompts = [prompt, *self._by_name.values()] if may_choose else [prompt]
        found = next((match for each in prompts if (match := _TASK.fullmatch(each))), None)
        if found is None:
            known = ", ".join(name for name in self.names if _TASK.fullmatch(self._by_name[name])) or "none"
            raise UnsupportedError(f"instruction: it goes into prompts with a task; this model has {known}.")
        return f"{found['head']}{instruction}{found['tail']}"
