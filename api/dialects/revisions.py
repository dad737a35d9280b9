"""A request that is pinned: it is for one revision of its model, whose name is `model@revision`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from api.dialects.request import REVISION_HEADER, InferenceRequest
from shared.errors import InvalidRequestError

MAX_REVISION = 64
"""Maximum length of a revision, in characters."""

REVISION_PATTERN = f"[A-Za-z0-9._:-]{{1,{MAX_REVISION}}}"
MAX_CACHED = 64
"""Texts of which it is known whether they are revisions: each answer has one."""

_REVISION = re.compile(REVISION_PATTERN)
_REVISIONS = re.compile(f"{REVISION_PATTERN}(,{REVISION_PATTERN})*")


def are_revisions(text: str) -> bool:
    """Whether a text is one revision, or several that commas separate, and nothing else: then it may be a header."""
    return _is_revision(text) if len(text) <= MAX_REVISION else _REVISIONS.fullmatch(text) is not None


@lru_cache(MAX_CACHED)
def _is_revision(text: str) -> bool:
    """Returns what `are_revisions` does, for a text of at most MAX_REVISION characters: no other is remembered."""
    return _REVISIONS.fullmatch(text) is not None


def split_model(model: str | None, is_served: Callable[[str], bool]) -> tuple[str | None, str]:
    """Returns the name of a model, and the revision that it is pinned to: "" if it is not.

    `is_served`: whether there is a model of a name, which may have an @, as a folder may.
    """
    if model is None or "@" not in model or is_served(model):
        return model, ""
    name, _, revision = model.rpartition("@")
    return name or None, revision


def pin(request: InferenceRequest, headers: Mapping[str, str], is_served: Callable[[str], bool]) -> InferenceRequest:
    """Returns a request with the revision that its model's name, or the header X-Model-Revision, pins it to.

    Raises:
        InvalidRequestError: that is no revision; or they name different ones.
    """
    model, revision = split_model(request.model, is_served)
    in_header = headers.get(REVISION_HEADER)
    if in_header is None and model is request.model:
        return request
    if in_header is not None and revision not in ("", in_header):
        message = "The header X-Model-Revision and the model's name ask for different revisions: send one of them."
        raise InvalidRequestError(message, param="model")
    revision = revision if in_header is None else in_header
    if not _REVISION.fullmatch(revision):
        message = "A revision is what an answer's header x-model-revision says; send model@revision, or that header."
        raise InvalidRequestError(message, param="model")
    return request._replace(model=model, revision=revision)


def check_unpinned(model: str | None, headers: Mapping[str, str], is_served: Callable[[str], bool]) -> None:
    """Raises InvalidRequestError: a request for a job is pinned."""
    if REVISION_HEADER in headers or split_model(model, is_served)[1]:
        raise InvalidRequestError(
            "A job cannot be pinned to a revision of the model: its status names all revisions that computed it. "
            "Leave out the header X-Model-Revision, and @ in the model's name."
        )
