"""A parser of the series, labels and values in PromQL expressions, as far as the project's rules and panels need it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_METRIC = re.compile(r"\b(?:redbatch|process)_\w+|\bup\b")
_SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_BY = re.compile(r"\bby\s*\(([^)]*)\)\s*\(")
_ON = re.compile(r"\bon\s*\(([^)]*)\)")


class Matcher(NamedTuple):
    """A matcher of a label: the operator compares it with a value or with a pattern."""

    metric: str
    label: str
    operator: str
    value: str

    def patterns(self) -> list[str]:
        """Returns the patterns for each of which a value must exist."""
        return self.value.split("|") if "~" in self.operator else [re.escape(self.value)]


def metrics_in(expression: str) -> set[str]:
    """Returns the names of the metrics in an expression."""
    return set(_METRIC.findall(re.sub(r'"[^"]*"|\b(?:by|on)\s*\([^)]*\)', "", expression)))


def matchers_in(expression: str) -> Iterator[Matcher]:
    """Yields the matchers of its selectors."""
    for metric, inside in _SELECTOR.findall(expression):
        for label, operator, value in _MATCHER.findall(inside):
            yield Matcher(metric, label, operator, value)


def groups_in(expression: str) -> Iterator[tuple[list[str], str]]:
    """Yields the labels of each `by` with the expression that is aggregated by them."""
    for found in _BY.finditer(expression):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(expression[end], 0)
            end += 1
        yield _names(found[1]), expression[found.end() : end - 1]


def joins_in(expression: str) -> Iterator[list[str]]:
    """Yields the labels of each `on`."""
    for found in _ON.finditer(expression):
        yield _names(found[1])


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
