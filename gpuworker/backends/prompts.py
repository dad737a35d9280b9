"""The prompts of a sentence-transformers model: texts that go before inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuworker.backends.base import InputRefusedError

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel


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

    def find(self, name: str | None) -> str:
        """Returns a prompt: for None the default one, for "" none. Raises InputRefusedError: the model lacks it."""
        if name is None:
            return self._default
        if name and name not in self._by_name:
            known = ", ".join(self.names) or "none"
            raise InputRefusedError(f"prompt_name: this model has no such prompt; it has {known}.")
        return self._by_name.get(name, "")
