"""The mutations name texts of the present code. The scenarios that must detect them take minutes; this runs always."""

from __future__ import annotations

import pytest

from tests.chaos.test_mutations import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_each_mutation_changes_one_line_of_the_code(mutation: Mutation) -> None:
    """Its text occurs in its file exactly once."""
    assert (ROOT / mutation.path).read_text(encoding="utf-8").count(mutation.original) == 1
