"""All errors of shared.errors, and the one that a reply names."""

from __future__ import annotations

from shared import errors
from shared.errors import InternalError, RedbatchError


def error_tree(root: type[RedbatchError] = RedbatchError) -> list[type[RedbatchError]]:
    """Returns every class of the tree, the root first. Subclasses in other modules never cross a process border."""
    children = [each for each in root.__subclasses__() if each.__module__ == errors.__name__]
    return [root, *(cls for child in children for cls in error_tree(child))]


def error_from_code(code: str, message: str) -> RedbatchError:
    """Returns the error that a reply names; an unknown code becomes InternalError. Its message may quote an input."""
    by_code = {cls.code: cls for cls in error_tree()}  # if a base and its child share a code: the child
    return by_code.get(code, InternalError)(message, quoted=message)
