"""`make sbom`: what the bills of materials are made from."""

from __future__ import annotations

import re

import pytest

from tests.deploy.dockerfile import chain, stages
from tools.sbom import IMAGES, ROOT, requirements_of


def installed_files(image: str) -> set[str]:
    """Returns the files of requirements/ that the stages of an image install, and those whose files it copies."""
    todo, found = [image], set[str]()
    while todo:
        for stage in chain(todo.pop()):
            for word, rest in stage.instructions:
                copied = re.match(r"--from=(\S+)", rest) if word == "COPY" else None
                if copied and copied[1] != "wheel":
                    todo.append(copied[1])
                elif word == "COPY":
                    found |= set(re.findall(r"requirements/(\S+\.(?:lock|txt))", rest))
    return found


def test_every_image_has_a_bill() -> None:
    """The images are the stages that no other stage is based on, and that have a command to run."""
    bases = {stage.base for stage in stages().values()}
    runnable = {name for name in stages() if name not in bases and any(each.values("CMD") for each in chain(name))}
    assert runnable == set(IMAGES)


@pytest.mark.parametrize("image", IMAGES)
def test_a_bill_is_made_from_what_the_image_installs(image: str) -> None:
    """It has each package that the Dockerfile installs, and torch."""
    assert installed_files(image) == set(IMAGES[image])
    text = requirements_of(image)
    assert text.count("--hash=sha256:") > 50
    assert ("\ntorch==" in text) == image.startswith("worker")
    for name in IMAGES[image]:
        assert (ROOT / "requirements" / name).read_text(encoding="utf-8") in text
