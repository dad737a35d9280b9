"""A bad value of any option of any command, as a flag or as a variable, is refused in words of the option."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer
from annotated_types import Ge, Le
from setproctitle import getproctitle, setproctitle
from typer.core import TyperCommand, TyperGroup, TyperOption

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.bench.settings import BenchSettings
from redbatch.commands import app
from redbatch.flags import METAVARS, SettingsCommand, settings_of
from redbatch.tune.settings import TuneSettings
from redbatch.up.run_file import Announcement, RunFile
from shared.option_words import NUMBERS, choices_of, what_it_takes
from shared.process.settings import read_settings

SETTINGS_CLASSES = (GatewaySettings, WorkerSettings, BenchSettings, TuneSettings)
FOREIGN_WORDS = (
    *("pydantic", "regex", "pattern", "errno", "input should", "validation error", "value error", "traceback"),
    *("unable to", "valueerror", "filenotfounderror", "does not take this value", "expecting", "delimiter"),
    "does not appear",
)
NO_TEXT = {"INTEGER": "soon", "N": "soon", "NUMBER": "soon", "BOOLEAN": "perhaps", "PORT": "soon"}
"""A bad value by the kind of an option's values."""

BAD_TEXTS = {
    "--admin-host": "no host",
    "--body": "{'input': 7}",
    "--data-dir": "texts.txt",
    "--redis-shards": "redis://a,redis://a",
    "--device": "gpu",
    "--devices": "cpu,gpu",
    "--drop-old": "nowhere.acl",
    "--from": "soon",
    "--group": "nonsense",
    "--duration": "soon",
    "--expires": "soon",
    "--gpu-lease-pool": "no pool",
    "--header": "nonsense",
    "--host": "no host",
    "--int8-ranges": "nowhere.npy",
    "--keep": "nowhere.acl",
    "--model": "simulated:base_ms=fast",
    "--model-args": "[1]",
    "--model-revision": "no revision",
    "--namespace": "No Namespace",
    "--out": "nowhere/out.json",
    "--path": "predict",
    "--plot": "run.gif",
    "--preferred-batch-sizes": "8;16",
    "--queue": "No Queue",
    "--redis-password-file": "nowhere.txt",
    "--redis-tls-ca": "nowhere.pem",
    "--redis-tls-cert": "nowhere.pem",
    "--redis-tls-key": "nowhere.pem",
    "--redis-url": "redis://a:6379,b:6379",
    "--root-path": "redbatch/",
    "--scope": "nonsense",
    "--search": "nonsense",
    "--suffix": "no suffix",
    "--tenant": "no tenant",
    "--texts": "nowhere.txt",
    "--to": "soon",
    "--trusted-proxies": "everyone",
    "--warmup": "soon",
    "--worker-id": "no id",
}
ANY_TEXT = {"--gpu-lease-dir", "--pool", "--name", "--redis-sentinel-password"}
"""Options that take any text: the engine looks for the folder, and a name may be any."""

OF_FILES = {"--column", "--keep", "--key", "--model", "--out", "--url"}
ELSEWHERE = {
    "embed": OF_FILES | {"--input-type", "--instruction", "--prompt-name"},
    "rerank": OF_FILES | {"--instruction", "--query", "--query-column"},
}
"""Options whose values mean something in a file or to a gateway: see tests/integration/test_embed.py."""

UNBOUNDED = {"--seed", "--listen-fd", "--up"}
"""Numbers that may be negative, or are looked up."""

ARGUMENTS = {
    "bench": ["http://127.0.0.1:9"],
    "completion": ["bash"],
    "dead purge": ["1-0"],
    "dead requeue": ["1-0"],
    "dead show": ["1-0"],
    "embed": ["texts.txt"],
    "jobs cancel": ["minilm.5f"],
    "jobs results": ["minilm.5f"],
    "jobs show": ["minilm.5f"],
    "keys revoke": ["5f"],
    "rerank": ["texts.txt", "--query", "a"],
}
REQUIRED = {
    "tune": ["--p95-ms", "100"],
    "size": ["--rate", "100"],
    "embed": ["--out", "out.npy"],
    "rerank": ["--out", "out.npy"],
    "jobs results": ["--out", "out.npy"],
}
CHOICES = {each.flag: each.choices for model in SETTINGS_CLASSES for each in settings_of(model) if each.kind is str}


def commands(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, TyperCommand]]:
    """Yields the commands below a group with their names, such as `dead list`."""
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        if isinstance(command, TyperCommand):
            yield " ".join((*path, name)), command
        else:
            yield from commands(command, (*path, name))


ROOT = typer.main.get_command(app)
COMMANDS = dict(commands(ROOT))


def options_of(name: str) -> dict[str, TyperOption]:
    """Returns the options of a command that take a value, by their flag; hidden ones are for other processes."""
    options = [each for each in COMMANDS[name].params if isinstance(each, TyperOption)]
    flags = {max(each.opts, key=len): each for each in options if not each.is_flag and not each.hidden}
    return {flag: each for flag, each in flags.items() if flag not in ELSEWHERE.get(name, set())}


def bad_values(flag: str, option: TyperOption) -> list[str]:
    """Returns bad values of an option; fails for a new option that no table of this file has."""
    kind = option.metavar or METAVARS.get(option.type_descriptor.annotation, "")
    if kind in NO_TEXT:
        out_of_range = ["-1"] if kind in {"INTEGER", "N", "NUMBER"} and flag not in UNBOUNDED else []
        return [NO_TEXT[kind], *out_of_range]
    if CHOICES.get(flag) or choices_of(option.type_descriptor.annotation):
        return ["nonsense"]
    if flag in ANY_TEXT:
        return []
    assert flag in BAD_TEXTS, f"add a bad value of {flag} to this file"
    return [BAD_TEXTS[flag]]


class CommandLine:
    """Runs commands in this process, which is far faster than a process for each of many bad values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, name: str, *arguments: str, **variables: str) -> tuple[int, str]:
        """Runs a command with what it requires; returns its exit code and what it printed to a wide terminal."""
        required = REQUIRED.get(name, [])
        line = [*name.split(), *ARGUMENTS.get(name, []), *(required if required[:1] != list(arguments[:1]) else ())]
        with self._monkeypatch.context() as environment:
            for variable, value in {"COLUMNS": "400", "TERM": "dumb", **variables}.items():
                environment.setenv(variable, value)
            with pytest.raises(SystemExit) as left:
                ROOT.main([*line, *arguments], prog_name="redbatch")
        return int(left.value.code or 0), "".join(self._capsys.readouterr())

    def complaints(self, option: str, runs: Iterable[tuple[int, str]]) -> str:
        """Returns what is wrong with the refusals of the bad values of an option; empty if nothing is."""
        lines = ""
        for code, printed in runs:
            foreign = [word for word in FOREIGN_WORDS if word in printed.lower()]
            if code != 2 or option not in printed or foreign:
                lines += f"{option}: exit code {code}, {foreign}\n{printed}"
        return lines


@pytest.fixture
def command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    """Returns the command line in a folder with a text file. It finds no `redbatch up` that this user runs."""
    (tmp_path / "texts.txt").write_text("one text\n", encoding="utf-8")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    title, logging = getproctitle(), structlog.get_config()
    yield CommandLine(monkeypatch, capsys)
    setproctitle(title)
    structlog.configure(**logging)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_value_of_a_flag_is_refused_in_words_of_the_flag(name: str, command_line: CommandLine) -> None:
    """The message names the flag, has no words of the libraries that found it, and the exit code is 2."""
    values = {flag: bad_values(flag, option) for flag, option in options_of(name).items()}
    complaints = [
        command_line.complaints(flag, (command_line.run(name, flag, value) for value in each))
        for flag, each in values.items()
    ]
    assert "".join(complaints) == ""


@pytest.mark.parametrize("name", ["bench", "gateway", "worker"])
def test_a_bad_value_is_reported_before_a_choice_of_ups(
    name: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While several `redbatch up` run, one of which the user has to choose later."""
    monkeypatch.delitem(ARGUMENTS, name, raising=False)  # a URL would be the choice
    ups = [Announcement(RunFile(os.getpid() + n, f"http://127.0.0.1:{n}", "redis://a", "minilm")) for n in (1, 2)]
    options = options_of(name)
    values = {flag: bad_values(flag, option)[:1] for flag, option in options.items()}
    complaints = [
        command_line.complaints(flag, (command_line.run(name, flag, value) for value in each))
        for flag, each in values.items()
    ]
    for each in ups:
        each.withdraw()
    assert "".join(complaints) == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_value_of_a_variable_is_refused_with_its_name(name: str, command_line: CommandLine) -> None:
    """So a container's log says which variable to mend."""
    options = {flag: option for flag, option in options_of(name).items() if option.envvar}
    values = {str(option.envvar): bad_values(flag, option)[:1] for flag, option in options.items()}
    complaints = [
        command_line.complaints(variable, (command_line.run(name, **{variable: value}) for value in each))
        for variable, each in values.items()
    ]
    assert "".join(complaints) == ""


@pytest.mark.parametrize("model", SETTINGS_CLASSES)
def test_the_choices_of_a_setting_are_listed(model: type[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A value that is no choice is answered with all of them."""
    for setting in settings_of(model):
        if setting.choices:
            needed = {"p95_ms": "100"} if model is TuneSettings else {}
            with pytest.raises(SystemExit):
                read_settings(model, needed | {setting.name: "nonsense"})
            (line,) = capsys.readouterr().err.splitlines()
            assert f"it takes {', '.join(setting.choices[:-1])} or {setting.choices[-1]}, got 'nonsense'" in line


@pytest.mark.parametrize("model", SETTINGS_CLASSES)
def test_a_field_with_a_pattern_has_words_for_it(model: type[Any]) -> None:
    """Or its error could only say that it does not take the value."""
    for name, field in model.model_fields.items():
        marks = [each for each in field.metadata if getattr(each, "pattern", None)]
        assert not marks or what_it_takes(field.annotation, field.metadata), name


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("worker", ["--max-batch-size", "0"], "it takes a whole number from 1 to 10000, got '0'"),
        ("worker", ["--runners", "many"], "it takes a whole number from 1 to 64 or auto, got 'many'"),
        ("worker", ["--heartbeat-s", "0"], "it takes a number above 0, up to 60, got '0'"),
        ("worker", ["--compile", "maybe"], "it takes true or false, got 'maybe'"),
        ("gateway", ["--cache-bytes", "-5"], "it takes a whole number of at least 0, got '-5'"),
        (
            "gateway",
            ["--trusted-proxies", "foo"],
            "it takes addresses or networks such as 10.0.0.0/8, separated by commas, got 'foo'",
        ),
        ("gateway", ["--trusted-proxies", "10.1.2.3/8"], "10.1.2.3/8 is an address in the network 10.0.0.0/8: write"),
        ("gateway", ["--queue", "Mini LM"], "it takes a name of 1 to 64 lower-case letters"),
        (
            "queue",
            ["--queue", "squares:Squares"],
            "got 'squares:Squares'; a model of that name has the queue squares-squares",
        ),
        (
            "worker",
            ["--max-batch-size", "100", "--claim-window", "99"],
            "--claim-window (REDBATCH_CLAIM_WINDOW): at least --max-batch-size (100)",
        ),
        ("keys create", ["--weight", "heavy"], "'--weight': it takes a number from 0.01 to 100"),
        ("keys create", ["--tokens-per-s", "1e12"], "--tokens-per-s: it takes a number from 0 to 1000000000"),
        ("dead list", ["--most", "0"], "'--most': it takes a whole number of at least 1"),
        ("size", ["--rate", "0"], "'--rate': it takes a number from 0.001 to 1000000000"),
        ("size", ["--rate", "5", "--headroom", "1"], "'--headroom': it takes a number from 0 to 0.9"),
        ("settings", ["nonsense"], "there is no setting nonsense"),
        ("bench", ["--duration", "1s", "--requests", "5"], "redbatch: --duration and --requests exclude each other\n"),
    ],
)
def test_the_words_say_what_an_option_takes(
    name: str, arguments: list[str], words: str, command_line: CommandLine
) -> None:
    """The kind of value, its bounds and its special words; of two settings that contradict, both."""
    code, printed = command_line.run(name, *arguments)
    assert code == 2
    assert words in printed


def test_a_long_value_is_not_repeated_in_full(command_line: CommandLine) -> None:
    """An error is a line that a terminal can show."""
    code, printed = command_line.run("worker", "--model-args", "x" * 5_000)
    assert (code, len(printed) < 500) == (2, True)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["quue"], "'queue'"),
        (["jobs", "lst"], "'list'"),
        (["worker", "--modle", "null"], "--model,"),
        (["up", "--prot", "8000"], "--port or --host?"),
        (["keys", "create", "--tennant", "web"], "--tenant"),
        (["--hlep"], "--help?"),
    ],
)
def test_the_nearest_command_or_option_is_named_first(line: list[str], hint: str, command_line: CommandLine) -> None:
    """For a misspelt one."""
    code, printed = command_line.run(" ".join(line))
    assert code == 2
    assert f"Did you mean {hint}" in printed


def test_an_option_that_resembles_none_has_no_hint(command_line: CommandLine) -> None:
    """A wrong guess would mislead."""
    assert "No such option: --zzzzzz " in command_line.run("queue", "--zzzzzz")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_whole_flags(name: str, command_line: CommandLine) -> None:
    """On a terminal of 80 columns none is cut: a reader could not type it."""
    code, printed = command_line.run(name, "--help", COLUMNS="80")
    options = [each for each in COMMANDS[name].params if isinstance(each, TyperOption) and not each.hidden]
    flags = {flag for each in options for flag in (*each.opts, *each.secondary_opts)}
    assert code == 0
    assert {flag for flag in flags if not re.search(rf"(?<![\w-]){flag}(?![\w…-])", printed)} == set()
    assert not re.search(r"\S…", printed), "a variable or a value is cut"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_an_option_takes(name: str, command_line: CommandLine) -> None:
    """The choices or the bounds, in the words of the error about a bad value; switches show no kind of value."""
    _, printed = command_line.run(name, "--help", COLUMNS="2000")
    rows = re.split(r"│ +(?:\* +)?(?=-)", printed)
    is_for_settings = isinstance(COMMANDS[name], SettingsCommand)
    settings = {each.flag: each.takes for model in SETTINGS_CLASSES for each in settings_of(model) if is_for_settings}
    for flag, option in options_of(name).items():
        row = next(each for each in rows if re.match(rf"{flag} ", each))
        limits: Any = option.type_descriptor.parameter_info
        bounds = [form(each) for form, each in ((Ge, limits.min), (Le, limits.max)) if each is not None]
        of_option = what_it_takes(option.type_descriptor.annotation, bounds)
        words = settings.get(flag, of_option) if option.envvar else of_option
        assert words in row or words in NUMBERS.values(), row
        assert f"{option.metavar} " in row
    assert not re.search(r"[<>]=|range>|<bool>|<str>|<path>", "".join(rows[1:]))
