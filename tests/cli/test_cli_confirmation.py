"""A user who leaves a subcommand's question instead of answering it."""

import io
import sys

import pytest

from refold.cli.output import read_yes


class Leaving(io.StringIO):
    def readline(self, size: int = -1, /) -> str:
        raise KeyboardInterrupt


def test_ctrl_c_at_a_confirmation_prints_a_newline(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Leaving())

    with pytest.raises(KeyboardInterrupt):
        read_yes()

    assert capfd.readouterr().out == "\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("y\n", True), ("Yes\n", True), ("\n", False), ("", False), ("nay\n", False)],
)
def test_confirmation_accepts_only_y_and_yes(
    monkeypatch: pytest.MonkeyPatch, typed: str, expected: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))

    assert read_yes() is expected
