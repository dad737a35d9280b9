"""`redbatch completion`, and the candidates that a shell asks for. Typer makes scripts and candidates."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
import typer.completion

COMPLETE_VARIABLE = "_REDBATCH_COMPLETE"
"""Set by the script when a shell asks for candidates: typer derives the name from that of the program."""


class Shell(StrEnum):
    """A shell with completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that completes.")]) -> None:
    """Print the script that lets a shell complete commands, options and choices.

    source <(redbatch completion bash)

    source <(redbatch completion zsh)

    redbatch completion fish | source

    In ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish, such a line works in
    each new shell.
    """
    script = typer.completion.get_completion_script(  # type: ignore[attr-defined]  # typer exports none of its functions
        prog_name="redbatch", complete_var=COMPLETE_VARIABLE, shell=shell.value
    )
    typer.echo(script)


def prepare_candidates() -> None:
    """Makes typer answer in the way that the scripts expect."""
    typer.completion.completion_init()  # type: ignore[attr-defined]  # as above
