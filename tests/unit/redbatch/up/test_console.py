"""What `up` prints."""

from __future__ import annotations

import io

from rich.console import Console

from redbatch.up.console import PatientConsole, Screen, readable

EVENT = '{"ts":"2026-01-02T03:04:05.678Z","level":"info","msg":"ready","service":"worker","model":"minilm"}'


def plain_screen() -> tuple[Screen, io.StringIO]:
    """A screen that is no terminal, and what it shows."""
    output = io.StringIO()
    return Screen(Console(file=output, width=40, highlight=False)), output


def test_json_lines_become_readable() -> None:
    """On a terminal people read time, level, message and fields; briefly, no time and level."""
    assert readable(EVENT) == "03:04:05 info    ready model=minilm"
    assert readable(EVENT, brief=True) == "ready model=minilm"


def test_other_lines_stay_as_they_are() -> None:
    """What is no log line of ours is shown as printed, JSON or not."""
    for text in ("Traceback (most recent call last):", "[1, 2]", '"text"', '{"no": "msg"}', ""):
        assert readable(text) == text


def test_tracebacks_come_below_their_line() -> None:
    """A traceback keeps its lines."""
    assert readable('{"msg":"failed","exception":"Traceback\\n  x"}', brief=True) == "failed\nTraceback\n  x"


def test_elsewhere_lines_stay_json_with_the_name_in_front() -> None:
    """Piped into a file or a tool, a child's line is whole, however long, and nothing of it is taken for markup."""
    screen, output = plain_screen()
    screen.line("worker-1", EVENT)
    screen.line("worker-1", "[bold]" + "x" * 200)
    assert output.getvalue() == f"worker-1  | {EVENT}\nworker-1  | [bold]{'x' * 200}\n"


def test_on_a_terminal_lines_are_readable_and_coloured() -> None:
    """Each name has a colour of its own."""
    output = io.StringIO()
    screen = Screen(Console(file=output, force_terminal=True, color_system="standard", highlight=False))
    screen.line("worker-1", EVENT)
    screen.line("gateway-1", EVENT)
    first, second = output.getvalue().splitlines()
    assert "ready model=minilm" in first
    assert first.split("worker")[0] != second.split("gateway")[0]


def test_progress_is_a_line_now_and_then() -> None:
    """Without a terminal there is no spinner: a line at once, and one every ten seconds."""
    screen, output = plain_screen()
    for elapsed_s in (0.1, 5.0, 10.5, 12.0):
        screen.progress("loading model minilm", elapsed_s)
    lines = output.getvalue().splitlines()
    assert [line.split("| ")[1] for line in lines] == ["loading model minilm (0 s)", "loading model minilm (10 s)"]


def test_facts_can_be_copied() -> None:
    """Each fact is one line, however narrow the terminal."""
    screen, output = plain_screen()
    screen.facts("Ready", [("try it", "curl " + "x" * 100), ("stop", "Ctrl-C")])
    assert f"  try it  curl {'x' * 100}\n  stop    Ctrl-C\n" in output.getvalue()


def test_a_reader_who_left_does_not_stop_the_cluster() -> None:
    """`redbatch up | head` goes on."""

    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    screen = Screen(PatientConsole(file=Closed(), highlight=False))
    screen.line("worker-1", "any")
    screen.line("worker-1", "any")


def test_what_a_line_quotes_does_not_steer_the_terminal() -> None:
    """Escape sequences in a child's line are not passed on to a terminal."""
    output = io.StringIO()
    screen = Screen(Console(file=output, force_terminal=True, color_system=None, highlight=False))
    screen.line("worker-1", '{"msg":"bad\\u001b[2Jid\\u0007"}')
    assert output.getvalue() == "worker-1  |          badid\n"
