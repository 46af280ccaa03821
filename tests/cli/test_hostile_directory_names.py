"""A directory whose name has control characters: no command passes them to the terminal."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from refold.cli.command_tree import Command, command_tree, walk_commands
from tests.cli.forked_starts import forked_starts
from tests.cli.running import script

SRC = Path(__file__).parents[2] / "src/refold"
# Sets the window title, rings, reverses the writing, hides text, and adds a line.
NAME = "w\x1b]0;pwn\x07\u202ex\u200by\u009bz\nrefold: all is well"
HOSTILE = re.compile("[\x1b\x07\u202e\u200b\x9b]|^refold: all is well", re.MULTILINE)
# Commands that ask a person, use a network or never end, with any arguments.
_AT_WORK = (
    "refold demo", "refold tour", "refold local", "refold models", "refold serve", "refold web",
    "refold tasks watch",
)  # fmt: skip
LEAVES = [
    subcommand for subcommand in walk_commands(command_tree()) if not subcommand.commands
]
COMMANDS = [command for command in LEAVES if not command.name.startswith(_AT_WORK)]


def hostile_words(command: Command) -> Sequence[str]:
    """Return the command line with the name of the directory for each of its arguments."""
    choices = (w.value.choices[:1] or (NAME,) for w in command.words if w.value.needed)
    return (*command.path[1:], *(word for words in choices for word in words))


Ran = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def run_refold() -> Iterator[Ran]:
    """Starts refold in a directory with these arguments."""
    with forked_starts() as starts:

        def run_refold(directory: Path, *arguments: str) -> tuple[int, str]:
            home = str(directory.parent / "home")
            environ = {**os.environ, "REFOLD_HOME": home, "HOME": home}
            return starts.run(directory, environ, *arguments)

        yield run_refold


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, run_refold: Ran) -> dict[bool, Path]:
    """Return two such directories. One of them has a session."""
    directories: dict[bool, Path] = {}
    for used in (False, True):
        directories[used] = tmp_path_factory.mktemp("hostile") / NAME
        directories[used].mkdir()
    answers = script(directories[True].parent, {"text": "Hello."})
    assert run_refold(directories[True], "-p", "hello", "--script", answers) == (
        0,
        "Hello.\n",
    )
    return directories


@pytest.mark.slow
@pytest.mark.parametrize("used", [False, True], ids=["without", "with a session"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_no_command_prints_control_characters_of_the_directory_name(
    places: dict[bool, Path], run_refold: Ran, command: Command, used: bool
) -> None:
    for arguments in (command.path[1:], hostile_words(command)):
        _, text = run_refold(places[used], *arguments)

        assert HOSTILE.findall(text) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [("--script", NAME), ("--replay", NAME), ("-r", NAME), ("-c",), ("--agent", NAME),
     ("--add-dir", NAME), ("-i", NAME), ("--json-schema", NAME), ("-m", NAME), (f"--{NAME}",),
     ("--allow", NAME), ("--preset", NAME), ("--record", f"{NAME}/x"), ("-w", NAME)],
)  # fmt: skip
def test_no_flag_of_print_mode_prints_control_characters_of_the_directory_name(
    places: dict[bool, Path], run_refold: Ran, flags: Sequence[str]
) -> None:
    answers = () if flags[0] in ("--script", "--replay", "-m") else ("--script", "none")
    _, text = run_refold(places[False], "-p", "hello", *flags, *answers)

    assert "refold: " in text
    assert HOSTILE.findall(text) == []


def test_no_module_except_streams_writes_to_stderr() -> None:
    """That module escapes control characters in every line."""
    allowed = {"streams.py"}
    writing = re.compile(r"stderr\.(write|print|buffer)|print\(.*file=sys\.stderr")
    texts = [
        str(path.relative_to(SRC))
        for path in (
            item
            for door in ("cli", "terminal", "headless")
            for item in (SRC / door).rglob("*.py")
        )
        if path.name not in allowed and writing.search(path.read_text(encoding="utf-8"))
    ]

    assert texts == []
