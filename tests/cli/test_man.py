"""The manual page contains the whole command line, and man can render it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from refold.cli.command_tree import (
    Command,
    Flag,
    Positional,
    Value,
    command_tree,
    walk_commands,
)
from refold.cli.man import man_page, manual
from refold.views.stream_json.turn_result import EXIT_CODES

SHIPPED = Path(__file__).parents[2] / "docs/refold.1"


def without_roff(text: str) -> str:
    """Without the orders of roff."""
    plain = re.sub(r"\\f[BIR]|\\[&:]", "", text).replace("\\-", "-")
    return plain.replace("\\(aq", "'").replace("\\(dq", '"').replace("\\(ga", "`")


def test_the_shipped_manual_page_equals_the_generated_one() -> None:
    """`make docs` writes it again."""
    assert SHIPPED.read_text(encoding="utf-8") == man_page()


def test_the_manual_page_has_the_standard_sections() -> None:
    assert re.findall(r"^\.SH (.*)$", man_page(), re.MULTILINE) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "FILES",
        "ENVIRONMENT", "EXAMPLES",
    ]  # fmt: skip


def test_the_manual_page_contains_every_flag_command_and_exit_code() -> None:
    text, root = without_roff(man_page()), command_tree()
    names = {
        name
        for subcommand in walk_commands(root)
        for flag in subcommand.flags
        for name in flag.names
    }
    exits = set(re.findall(r"^\d+$", text, re.MULTILINE))

    assert [
        subcommand.name for subcommand in walk_commands(root) if subcommand.name not in text
    ] == []
    assert [name for name in sorted(names) if name not in text] == []
    assert {str(code) for code in EXIT_CODES.values()} <= exits


def test_roff_requests_in_a_text_are_escaped() -> None:
    flag = Flag(("--x",), ".SH BAD\n'br \\fB", Value("X'Y"))
    root = Command(("refold",), "About.", (flag,), (Positional(Value("W")),))

    (after,) = re.findall(r"^\.TP\n(\\fB\\-\\-x.*\n.*)$", manual(root, "1"), re.MULTILINE)

    assert after == "\\fB\\-\\-x\\fR \\fIX\\(aqY\\fR\n\\&.SH BAD \\(aqbr \\efB"


@pytest.mark.peer
@pytest.mark.parametrize(
    "command",
    [
        ["mandoc", "-Tlint", "-W", "warning"],
        ["groff", "-ww", "-man", "-Tutf8"],
        ["man", "--warnings", "-l", "-"],
    ],
    ids=lambda words: words[0],
)
def test_the_manual_page_renders_without_warnings(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"optional: {command[0]} is not installed")

    done = subprocess.run(
        command, input=man_page(), capture_output=True, text=True, check=False, timeout=60
    )

    complaints = done.stdout if command[0] == "mandoc" else done.stderr
    assert (done.returncode, complaints) == (0, "")
