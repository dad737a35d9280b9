"""The names of models, and of their queues."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.model_names import public_model, queue_slug


@given(st.text(max_size=200))
@example("")
@example("/")
@example("----")
@example("sentence-transformers/all-MiniLM-L6-v2")
def test_a_slug_is_a_queue_name(model: str) -> None:
    """The queue name of any model is valid, and the slug of a slug is itself."""
    slug = queue_slug(model)
    assert re.fullmatch(r"[a-z0-9._-]{1,64}", slug)
    assert queue_slug(slug) == slug


def test_slugs_of_known_models() -> None:
    """A slug is the last part of a path or hub id, in lower case; the times of a simulated model are left out.

    The bundled model has one queue, by whichever name a worker loads it.
    """
    expected = {
        "minilm": "minilm",
        "null": "null",
        "simulated:base_ms=5,item_ms=3": "simulated",
        "sentence-transformers/all-mpnet-base-v2": "all-mpnet-base-v2",
        "sentence-transformers/all-MiniLM-L6-v2": "minilm",
        "all-MiniLM-L6-v2": "minilm",
        "/models/My Model/": "my-model",
        "my_package.my_module:MyModel": "my_package.my_module-mymodel",
        "é": "default",
    }
    assert {model: queue_slug(model) for model in expected} == expected


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("minilm", "minilm"),
        ("sentence-transformers/all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2"),
        ("squares:Squares", "squares:Squares"),
        ("/srv/models/my-model/", "my-model"),
        ("./my-model", "my-model"),
        ("~/models/my-model", "my-model"),
        ("models/of/mine", "mine"),
    ],
)
def test_clients_see_no_folders_of_a_model(name: str, public: str) -> None:
    """A path of the worker's machine says who runs it and where; a name of the hub has one slash."""
    assert public_model(name) == public
