"""Writes a tree of objects, values and conditions as a template of Helm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import yaml

from tools.helm_chart.nodes import ABSENT, Choice, Expression, Node, Slot, Text
from tools.helm_chart.scenarios import FLAGS

STEP = 2
END = "{{- end }}"


def template_of(tree: Node) -> str:
    """Returns the template of one object."""
    return "\n".join(_joined(_top(tree))) + "\n"


def condition(flag: str, values: tuple[str | bool, ...]) -> str:
    """Returns in Helm's language that a flag has one of these values."""
    name = f".Values.{FLAGS[flag].name}"
    choices = FLAGS[flag].choices
    if not choices:
        return name if True in values else f"not {name}"
    others = [each for each in choices if each not in values]
    if len(values) == 1:
        return f'eq {name} "{values[0]}"'
    if len(others) == 1:
        return f'ne {name} "{others[0]}"'
    return f"has {name} (list {' '.join(json.dumps(each) for each in values)})"


def _joined(lines: Iterable[str]) -> list[str]:
    """Lines in which a condition is not repeated for neighbours."""
    joined: list[str] = []
    blocks: list[str] = []  # the first line of each open block; "" if it has another branch
    ended = ""  # the first line of the block that the last line ended
    for line in lines:
        if line.startswith("{{- if "):
            blocks.append(line)
            if line == ended:
                joined.pop()
                ended = ""
                continue
        ended = ""
        if line.startswith("{{- else"):
            blocks[-1] = ""
        elif line == END:
            ended = blocks.pop()
        joined.append(line)
    return joined


def _top(tree: Node) -> Iterator[str]:
    if isinstance(tree, Choice):
        yield from _choice(tree, _top)
    else:
        for key, node in tree.items():
            yield from _field(f"{key}:", node, 0)


def _choice(choice: Choice, write: Callable[[Node], Iterator[str]]) -> Iterator[str]:
    branches = sorted(choice.branches, key=lambda branch: branch.node is ABSENT)
    word = "if"
    for number, branch in enumerate(branches):
        if branch.node is not ABSENT:
            last = number > 0 and number == len(branches) - 1
            yield "{{- else }}" if last else f"{{{{- {word} {condition(choice.flag, branch.values)} }}}}"
            yield from write(branch.node)
            word = "else if"
    yield END


def _field(prefix: str, node: Node, indent: int) -> Iterator[str]:
    """The lines of a field or item; `prefix` is `name:` or `-`."""
    start = f"{' ' * indent}{prefix}"
    if isinstance(node, Choice):
        yield from _choice(node, lambda each: _field(prefix, each, indent))
    elif isinstance(node, Slot):
        yield from _slot(prefix, node, indent)
    elif isinstance(node, Text):
        yield f"{start} {{{{ toJson {_code(node)} }}}}"
    elif isinstance(node, dict) and node:
        fields = [_field(f"{key}:", each, indent + STEP) for key, each in node.items()]
        yield from _nested(start, [*chain(*fields)])
    elif isinstance(node, list) and node:
        yield from _nested(start, [*chain(*(_field("-", each, indent + STEP) for each in node))])
    else:
        first, *rest = _scalar(node)
        yield f"{start} {first}"
        yield from (f"{' ' * (indent + STEP)}{line}" if line else "" for line in rest)


def _nested(start: str, lines: list[str]) -> Iterator[str]:
    indent = " " * (len(start) + 1)
    if start.endswith("-") and lines[0].startswith(indent) and not lines[0].lstrip().startswith("- "):
        yield f"{start} {lines[0][len(indent) :]}"
        yield from lines[1:]
    else:
        yield start
        yield from lines


def _slot(prefix: str, slot: Slot, indent: int) -> Iterator[str]:
    line = f"{' ' * indent}{prefix} {{{{ toJson {slot.expression} }}}}"
    if not slot.optional:
        yield line
        return
    is_null = f'kindIs "invalid" {slot.expression}'
    if slot.literal is ABSENT:
        yield f"{{{{- if not ({is_null}) }}}}"
    else:
        yield f"{{{{- if {is_null} }}}}"
        yield from _field(prefix, slot.literal, indent)
        yield "{{- else }}"
    yield line
    yield END


def _code(text: Text) -> str:
    """It in Helm's language."""
    if len(text.parts) == 1 and isinstance(text.parts[0], Expression):
        return _argument(text.parts[0].code)
    form = "".join("%s" if isinstance(each, Expression) else each.replace("%", "%%") for each in text.parts)
    codes = [_argument(each.code) for each in text.parts if isinstance(each, Expression)]
    return f"({' '.join(['printf', json.dumps(form), *codes])})"


def _argument(code: str) -> str:
    return f"({code})" if " " in code and not code.startswith("(") else code


def _scalar(node: Node) -> list[str]:
    """The lines of a text, number or empty container. A text of several lines is a block, if YAML can write it so."""
    if isinstance(node, str) and "\n" in node and _fits_block(node):
        lines = node.removesuffix("\n").split("\n")
        return ["|" if node.endswith("\n") else "|-", *map(_escape, lines)]
    if isinstance(node, str) and "\n" in node:
        return [_escape(json.dumps(node))]
    written = yaml.safe_dump(node, width=float("inf"), allow_unicode=True, default_flow_style=True)
    return [_escape(written.removesuffix("\n").removesuffix("\n...").rstrip("\n"))]


def _fits_block(text: str) -> bool:
    lines = text.split("\n")
    ends = not text.endswith("\n\n") and not lines[0].startswith((" ", "\t")) and lines[0] != ""
    return ends and all(line == line.rstrip() and line.isprintable() for line in lines)


def _escape(text: str) -> str:
    """A text in which Helm finds no action."""
    return text.replace("{{", '{{ "{{" }}')
