"""Command files: `NAME.md`, and the expansion of `/NAME words`."""

from pathlib import Path

import pytest

from refold.errors import BadInput
from refold.skills.slash_commands import ShortcutInfo
from tests.skills.surrounded import SkillDirectories

REVIEW = """---
description: Review one pull request
argument-hint: [number] [focus]
allowed-tools: Bash(git:*)
---
Review $1, above all $2. All of it: $ARGUMENTS. It costs $100.
"""


@pytest.fixture
def directories(tmp_path: Path) -> SkillDirectories:
    return SkillDirectories(tmp_path)


def write_command(folder: Path, name: str, text: str | bytes) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def list_offered(directories: SkillDirectories, *names: str) -> dict[str, ShortcutInfo]:
    return {o.name: o for o in directories.shortcuts(*names).infos() if o.usage != "[task]"}


@pytest.mark.parametrize(
    ("words", "expanded"),
    [
        ("7 speed", "Review 7, above all speed. All of it: 7 speed. It costs $100."),
        ('7 "two words"', 'Review 7, above all two words. All of it: 7 "two words". It costs $100.'),
        ("$2 $ARGUMENTS", "Review $2, above all $ARGUMENTS. All of it: $2 $ARGUMENTS. It costs $100."),
        ("", "Review , above all . All of it: . It costs $100."),
    ],
)  # fmt: skip
def test_arguments_replace_placeholders_of_a_command_file(
    directories: SkillDirectories, words: str, expanded: str
) -> None:
    write_command(directories.project / ".claude/commands", "Review.md", REVIEW)

    assert directories.shortcuts().expand("review", words, {}) == expanded


def test_arguments_are_appended_without_a_placeholder(
    directories: SkillDirectories,
) -> None:
    write_command(
        directories.config / "commands", "go.md", "\ufeffGo on.\r\n!`rm -rf x` @README\r\n"
    )

    shortcuts = directories.shortcuts()

    text = "Go on.\n!`rm -rf x` @README"
    assert shortcuts.expand("go", " now ", {}) == f"{text}\n\nnow"
    assert shortcuts.expand("go", "", {}) == text


def test_command_files_are_listed_with_arguments_and_description(
    directories: SkillDirectories,
) -> None:
    write_command(directories.project / ".claude/commands", "review.md", REVIEW)
    write_command(
        directories.project / ".refold/commands", "git/tidy.md", "# Tidy up\n\nAll."
    )
    write_command(
        directories.home / ".claude/commands",
        "folded.md",
        "---\ndescription: >\n  long\n---\nText.",
    )

    offered = list_offered(directories)

    assert offered["/review"] == ShortcutInfo(
        "/review", "[number] [focus]", "Review one pull request"
    )
    assert offered["/git:tidy"] == ShortcutInfo("/git:tidy", "", "Tidy up")
    assert offered["/folded"] == ShortcutInfo("/folded", "", "Text.")
    assert directories.shortcuts().notices() == ()


def test_user_templates_precede_command_files_and_shipped_templates_follow(
    directories: SkillDirectories,
) -> None:
    write_command(directories.project / ".refold/commands", "one.md", "Ours.")
    write_command(directories.config / "commands", "one.md", "Mine.")
    write_command(directories.config / "commands", "two.md", "A file.")
    write_command(directories.config / "commands", "init.md", "My own init.")
    write_command(directories.config / "commands", "help.md", "My own help.")
    write_command(directories.config, "skills.md", "## /two\nA template.\n")

    shortcuts = directories.shortcuts("help")

    names = ("one", "two", "init", "skill:help")
    assert [shortcuts.expand(name, "", {}) for name in names] == [
        "Ours.", "A template.", "My own init.", "My own help.",
    ]  # fmt: skip
    assert shortcuts.find("help") is None
    assert shortcuts.notices() == (
        "the command ~/.config/refold/commands/one.md is ignored: "
        ".refold/commands/one.md comes first",
        "the command ~/.config/refold/commands/two.md is ignored: the template /two "
        "in ~/.config/refold/skills.md comes first",
        "/help is a command: yours is /skill:help",
    )


def test_command_files_of_an_untrusted_folder_are_ignored(
    directories: SkillDirectories,
) -> None:
    from refold.skills.catalogue import Catalogue, find_untrusted
    from refold.skills.slash_commands import Shortcuts

    write_command(directories.project / ".refold/commands", "one.md", "Ours.")
    around = directories.untrusting()

    assert Shortcuts(Catalogue(around), around, ()).find("one") is None
    assert find_untrusted(around) == (".refold/commands",)


def test_command_file_links_out_of_a_project_are_not_followed(
    directories: SkillDirectories, tmp_path: Path
) -> None:
    folder = directories.project / ".refold/commands"
    secret = write_command(tmp_path, "outside/secret.md", "Secret.")
    folder.mkdir(parents=True)
    (folder / "leak.md").symlink_to(secret)
    (folder / "out").symlink_to(secret.parent)

    shortcuts = directories.shortcuts()

    with pytest.raises(BadInput, match=r"leak\.md: it is a link that leads out"):
        shortcuts.expand("leak", "", {})
    assert shortcuts.find("out:secret") is None
    assert any("link that leads out of the project" in n for n in shortcuts.notices())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"---\ndescription: x\n---\n", "has no text"),
        (b"x" * 300_000, "it is larger than 256 KiB"),
    ],
)
def test_unreadable_command_file_explains_the_problem_when_used(
    directories: SkillDirectories, content: bytes, words: str
) -> None:
    write_command(directories.config / "commands", "bad.md", content)
    write_command(directories.config / "commands", "\x1b[2J.md", "x")

    assert words in list_offered(directories)["/bad"].about
    with pytest.raises(BadInput, match=words):
        directories.shortcuts().expand("bad", "", {})
    assert directories.shortcuts().notices() == (
        "the command ~/.config/refold/commands/\\x1b[2J.md is ignored: use letters, "
        "digits, - and _",
    )


def test_invisible_characters_in_a_command_file_are_removed(
    directories: SkillDirectories,
) -> None:
    write_command(directories.config / "commands", "go.md", "Go\u202e on.\U000e0041")

    assert directories.shortcuts().expand("go", "", {}) == "Go on."
