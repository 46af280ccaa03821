"""A response cannot control the terminal, and reaches a program unchanged."""

import io
import sys

import pytest

from refold.cli.output import print_answer
from refold.headless.streams import report_end

SAID = "red \x1b[31m\x9b2J \u202eturned\u2028 日本語\n"


class Out(io.TextIOWrapper):
    def __init__(self, *, screen: bool) -> None:
        super().__init__(io.BytesIO())
        self._screen = screen

    def isatty(self) -> bool:
        return self._screen


@pytest.mark.parametrize(
    ("screen", "shown"),
    [
        (True, "red \\x1b[31m\\x9b2J \\u202eturned\\u2028 日本語\n"),
        (False, SAID),
    ],
)
def test_answers_are_escaped_on_a_terminal_and_unchanged_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, shown: str, *, screen: bool
) -> None:
    out = Out(screen=screen)
    monkeypatch.setattr(sys, "stdout", out)

    print_answer(SAID)

    assert isinstance(out.buffer, io.BytesIO)
    assert out.buffer.getvalue().decode() == shown


def test_reason_for_a_missing_answer_is_escaped_and_printed_on_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_end("failed", "no\x1b[2J\nway")

    assert capsys.readouterr().err == "refold: failed: no\\x1b[2J\\nway\n"
