"""Keys and queue names."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from shared import keys as keys_module
from shared.keys import LANES, Keys
from shared.settings import queue_slug

QUEUE_NAMES = st.from_regex(r"[a-z0-9._-]{1,64}", fullmatch=True)
IDS = st.text("0123456789abcdef", min_size=1, max_size=32)


def all_keys(keys: Keys, name: str) -> list[str]:
    """Every key of a queue, with one request, gateway and worker of that name."""
    single = [keys.backlog, keys.epoch, keys.workers, *keys.lanes]
    return [*single, *(make(name) for make in (keys.reply, keys.bell, keys.submitted, keys.worker, keys.begun))]


@given(QUEUE_NAMES, IDS)
def test_all_keys_share_the_hash_tag(queue: str, name: str) -> None:
    """What stands between the first braces decides the slot, and it is the queue's name in every key."""
    found = all_keys(Keys(queue), name)
    assert {re.findall(r"\{([^}]*)\}", key)[0] for key in found} == {queue}
    assert all(key.startswith(Keys(queue).prefix) for key in found)


@given(QUEUE_NAMES, IDS)
def test_no_two_keys_are_one(queue: str, name: str) -> None:
    """Names of requests, gateways and workers cannot collide with each other or with the rest."""
    found = all_keys(Keys(queue), name)
    assert len(set(found)) == len(found)


def test_every_key_is_on_the_page() -> None:
    """The table in the module's docstring names every key, with the placeholder it is made of."""
    page = keys_module.__doc__ or ""
    for key in all_keys(Keys("<queue>"), "<x>"):
        shown = re.sub(rf"q:({'|'.join(LANES)})$", "q:<lane>", re.escape(key)).replace("<x>", r"<[a-z ]+>")
        assert re.search(rf"\| {shown} +\|", page), key


@given(st.text(max_size=200))
@example("")
@example("/")
@example("----")
@example("sentence-transformers/all-MiniLM-L6-v2")
def test_a_slug_is_a_queue_name(model: str) -> None:
    """Whatever a model is called, its queue's name is a legal one, and the slug of a slug is itself."""
    slug = queue_slug(model)
    assert re.fullmatch(r"[a-z0-9._-]{1,64}", slug)
    assert queue_slug(slug) == slug


def test_slugs_of_known_models() -> None:
    """The last part of a path or hub id, in lower case; the times of a simulated one do not count."""
    expected = {
        "minilm": "minilm",
        "null": "null",
        "simulated:base_ms=5,item_ms=3": "simulated",
        "sentence-transformers/all-MiniLM-L6-v2": "all-minilm-l6-v2",
        "/models/My Model/": "my-model",
        "my_package.my_module:MyModel": "my_package.my_module-mymodel",
        "é": "default",
    }
    assert {model: queue_slug(model) for model in expected} == expected
