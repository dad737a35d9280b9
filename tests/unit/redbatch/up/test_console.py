"""Output of `redbatch up`."""

from __future__ import annotations

import io
import json
import shlex

from rich.console import Console

from redbatch.up.console import ClusterConsole, PipeSafeConsole, curl_line, format_log_line

EVENT = '{"ts":"2026-01-02T03:04:05.678Z","level":"info","msg":"ready","service":"worker","model":"minilm"}'


def plain_console() -> tuple[ClusterConsole, io.StringIO]:
    """Returns a console without a terminal, and its output."""
    output = io.StringIO()
    return ClusterConsole(Console(file=output, width=40, highlight=False)), output


def test_json_lines_become_readable() -> None:
    """A log line becomes time, level, message and fields; `brief` omits time and level."""
    assert format_log_line(EVENT) == "03:04:05 info    ready model=minilm"
    assert format_log_line(EVENT, brief=True) == "ready model=minilm"


def test_the_reason_follows_the_message() -> None:
    """It is a sentence, not a value among others; and of a line that is text already, `brief` has what `up` reports."""
    record = (
        '{"ts":"2026-01-02T03:04:05.6Z","level":"error","msg":"no heartbeat","reason":"Redis is gone.","redis":"h:1"}'
    )
    assert format_log_line(record) == "03:04:05 error   no heartbeat: Redis is gone. redis=h:1"
    assert format_log_line(format_log_line(record), brief=True) == "no heartbeat: Redis is gone. redis=h:1"


def test_other_lines_stay_as_they_are() -> None:
    """Any line that is not a log line of Redbatch stays unchanged, JSON or not."""
    for text in ("Traceback (most recent call last):", "[1, 2]", '"text"', '{"no": "msg"}', ""):
        assert format_log_line(text) == text


def test_tracebacks_come_below_their_line() -> None:
    """A traceback follows its log line and keeps its line breaks."""
    assert format_log_line('{"msg":"failed","exception":"Traceback\\n  x"}', brief=True) == "failed\nTraceback\n  x"


def test_without_a_terminal_lines_stay_json_after_the_name() -> None:
    """In a pipe or file, a line of a child is complete, however long, and is not interpreted as markup."""
    console, output = plain_console()
    console.print_child_line("worker-1", EVENT)
    console.print_child_line("worker-1", "[bold]" + "x" * 200)
    assert output.getvalue() == f"worker-1  | {EVENT}\nworker-1  | [bold]{'x' * 200}\n"


def test_in_text_form_records_are_readable_without_a_terminal() -> None:
    """With `--log-format text`, the records that `up` itself makes of Redis' lines are text too."""
    output = io.StringIO()
    ClusterConsole(Console(file=output, width=40, highlight=False), as_text=True).print_child_line("redis", EVENT)
    assert output.getvalue() == "redis     | 03:04:05 info    ready model=minilm\n"


def test_on_a_terminal_lines_are_readable_and_colored() -> None:
    """Lines are readable, and each name has a different color."""
    output = io.StringIO()
    console = ClusterConsole(Console(file=output, force_terminal=True, color_system="standard", highlight=False))
    console.print_child_line("worker-1", EVENT)
    console.print_child_line("gateway-1", EVENT)
    first, second = output.getvalue().splitlines()
    assert "ready model=minilm" in first
    assert first.split("worker")[0] != second.split("gateway")[0]


def test_progress_without_a_terminal_is_a_line_every_ten_seconds() -> None:
    """Without a terminal, progress is a line for each step at once and then one every ten seconds, not a spinner."""
    console, output = plain_console()
    console.show_progress("starting the gateway", 0.1)
    for elapsed_s in (3.0, 5.0, 13.5, 14.0):
        console.show_progress("loading model minilm", elapsed_s)
    lines = [line.split("| ")[1] for line in output.getvalue().splitlines()]
    assert lines == ["starting the gateway (0 s)", "loading model minilm (3 s)", "loading model minilm (14 s)"]


def test_facts_can_be_copied() -> None:
    """Each fact is one line, however narrow the terminal."""
    console, output = plain_console()
    console.print_facts("Ready", [("try it", "curl " + "x" * 100), ("stop", "Ctrl-C")])
    assert f"  try it  curl {'x' * 100}\n  stop    Ctrl-C\n" in output.getvalue()


def test_a_closed_pipe_does_not_stop_the_cluster() -> None:
    """Printing goes on without an error after the reader closed the pipe (`redbatch up | head`)."""

    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    console = ClusterConsole(PipeSafeConsole(file=Closed(), highlight=False))
    console.print_child_line("worker-1", "any")
    console.print_child_line("worker-1", "any")


def test_control_sequences_do_not_reach_the_terminal() -> None:
    """Escape sequences in a line of a child, whether it is a log line or not, reach the terminal escaped."""
    output = io.StringIO()
    console = ClusterConsole(PipeSafeConsole(file=output, force_terminal=True, color_system=None, highlight=False))
    console.print_child_line("worker-1", '{"msg":"bad\\u001b[2Jid\\u0007"}')
    console.print_child_line("worker-1", "a function prints \x1b[2J\x9b\u202e")
    assert output.getvalue().splitlines() == [
        "worker-1  |          bad\\u001b[2Jid\\u0007",
        "worker-1  | a function prints \\u001b[2J\\u009b\\u202e",
    ]


def test_curl_line_is_one_request() -> None:
    """The line is curl with the URL, the content type, a JSON body and, if there is one, the API key."""
    words = shlex.split(curl_line("http://127.0.0.1:8080"))
    assert words[0] == "curl"
    assert "http://127.0.0.1:8080/embed" in words
    assert words[words.index("-H") + 1] == "Content-Type: application/json"
    assert json.loads(words[words.index("-d") + 1]) == {"text": "hello"}
    with_api_key = shlex.split(curl_line("http://127.0.0.1:8080", "a.b"))
    assert "Authorization: Bearer a.b" in with_api_key
    assert [each for each in with_api_key if each not in words] == ["Authorization: Bearer a.b"]
