"""The completions that are offered at the cursor."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from refold.commands.completion import (
    CompletionChoice,
    NamedCommand,
    cache_choices,
    completer_of,
    fixed_choices,
)
from refold.commands.workspace_files import WorkspaceFiles
from refold.terminal.input.line_editor.prompt_toolkit_reader import PromptCompleter

TABLE = [
    NamedCommand("model", "choose", "[name]"),
    NamedCommand("mode", "rights"),
    NamedCommand("quit", "leave"),
    NamedCommand("cd", "go elsewhere", "[DIR]"),
]


def sessions() -> Iterable[CompletionChoice]:
    yield CompletionChoice("20260101-abc", "Fix the parser")
    yield CompletionChoice("docs", "Write the pages", "20260102-def Write the pages")


@pytest.fixture
def offers(tmp_path: Path) -> Callable[[str], list[str]]:
    (tmp_path / "src" / "many").mkdir(parents=True)
    for name in (
        "src/main.py",
        "src/other.py",
        "src/my shot.png",
        "src/many/deep_one.py",
        'src/"both" x',
        ".hidden",
        "odd\x1b\nname",
    ):
        (tmp_path / name).touch()
    choices = {"model": fixed_choices("one", "two"), "resume": sessions}
    files = WorkspaceFiles(lambda: str(tmp_path))
    complete = completer_of(TABLE, choices, lambda: str(tmp_path), files.find)
    return lambda before: [offer.text for offer in complete(before)]


@pytest.mark.parametrize(
    ("before", "offered"),
    [
        ("/mo", ["/model", "/mode"]),
        ("/model tw", ["two"]),
        ("/mode ", []),
        ("/cd ", ["src/"]),
        ("/cd src/ma", ["many/"]),
        ("/cd src/main", []),
        ("/resume def", ["docs"]),
        ("/resume ", ["20260101-abc", "docs"]),
        ("look at @src/ma", ["src/main.py", "src/many/", "src/many/deep_one.py"]),
        ("@", ["odd\\x1b\\nname", "src/"]),
        ("@.", [".hidden"]),
        ("@nowhere/x", []),
        ("(@src/ma", ["src/main.py", "src/many/", "src/many/deep_one.py"]),
        ("see @src/my", ['"src/my shot.png"', "src/main.py", "src/many/deep_one.py"]),
        ('see @"src/my s', ['src/my shot.png"']),
        ('see @"src/my shot.png" and', []),
        ("see @dpo", ["src/many/deep_one.py"]),
        ("see @DEEP_ONE", ["src/many/deep_one.py"]),
        ("see @deep_noe.py", ["src/many/deep_one.py"]),
        ("/skill look at @dpo", ["src/many/deep_one.py"]),
        ("@od", ["odd\\x1b\\nname"]),
        ('@src/"b', []),
        ("!cat src/ma", ["main.py", "many/"]),
        ("plain words", []),
        ("two\n/mo", []),
        ("", []),
    ],
)
def test_completion_offers_fit_the_text_before_the_cursor(
    offers: Callable[[str], list[str]], before: str, offered: Sequence[str]
) -> None:
    assert offers(before) == offered


@pytest.mark.parametrize("path", ["/usr/bin:/bin", "/nowhere"], ids=["ripgrep", "walk"])
def test_files_are_found_by_parts_of_their_names_with_the_best_match_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("PATH", path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "engine" / "loops").mkdir(parents=True)
    (tmp_path / "built").mkdir()
    (tmp_path / ".gitignore").write_text("built/\n", encoding="utf-8")
    (tmp_path / "__pycache__").mkdir()
    for name in (
        "engine/loop.py", "engine/loops/old.py", ".loop", "built/loop.py", "__pycache__/loop.pyc"
    ):  # fmt: skip
        (tmp_path / name).touch()
    files = WorkspaceFiles(lambda: str(tmp_path))

    assert files.find("loop") == [
        "engine/loop.py", "engine/loops/old.py", "__pycache__/loop.pyc", ".loop"
    ]  # fmt: skip
    assert files.find("englo") == ["engine/loop.py", "engine/loops/old.py"]
    assert files.find("nothing") == []


def test_cd_completion_offers_only_directories(
    offers: Callable[[str], list[str]], tmp_path: Path
) -> None:
    for number in range(60):
        (tmp_path / f"a{number}").touch()

    assert offers("/cd ") == ["src/"]


def test_completion_lists_the_files_of_the_current_directory_after_a_change(
    tmp_path: Path,
) -> None:
    for name in ("one/first.py", "two/second.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    here = [tmp_path / "one"]
    files = WorkspaceFiles(lambda: str(here[0]))

    assert files.find("py") == ["first.py"]
    here[0] = tmp_path / "two"
    assert files.find("py") == ["second.py"]
    here[0] = tmp_path / "gone"
    assert files.find("py") == []


def test_completion_choices_are_not_computed_at_each_key() -> None:
    looked = list[int]()

    def choices() -> Iterable[CompletionChoice]:
        looked.append(1)
        yield CompletionChoice("one")

    result = cache_choices(choices, seconds=3600)

    assert [list(result()), list(result())] == [
        [CompletionChoice("one")],
        [CompletionChoice("one")],
    ]
    assert looked == [1]


def test_control_sequences_in_completion_names_are_escaped(tmp_path: Path) -> None:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    names = ["a\x1b[2Jb", "c\u202ed", "e\nf"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / os.fsdecode(b"g\xff")).touch()
    table = [NamedCommand("x\x1b", "means \x1b[31m", "\u202e")]
    completer = PromptCompleter(completer_of(table, {}, lambda: str(tmp_path)))

    rows = [
        (completion.text, completion.display_text, completion.display_meta_text)
        for before in ("@", "/")
        for completion in completer.get_completions(Document(before), CompleteEvent())
    ]

    assert rows == [
        ("a\\x1b[2Jb", "a\\x1b[2Jb", ""),
        ("c\\u202ed", "c\\u202ed", ""),
        ("e\\nf", "e\\nf", ""),
        ("g\\xff", "g\\xff", ""),
        ("/x\x1b", "/x\\x1b \\u202e", "means \\x1b[31m"),
    ]
