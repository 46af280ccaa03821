"""Templates in a skills.md, and the expansion of `/name words`."""

from pathlib import Path

import pytest

from refold.errors import BadInput
from refold.skills.directories import SkillFolder
from refold.skills.slash_commands import ShortcutInfo
from refold.skills.templates import (
    Placeholder,
    Template,
    fill,
    missing,
    slot_values,
    templates,
)
from tests.skills.surrounded import SkillDirectories, write

FIX = Template(
    "fix", (Placeholder("file"), Placeholder("what")), "Fix {what} in {file}.", "skills.md"
)
NOTE = Template("note", (Placeholder("text", needed=False),), "Note: {text}", "skills.md")
PLAIN = Template("go", (), "Go on. Keep {this}.", "skills.md")


def parse_templates(
    tmp_path: Path, text: str
) -> tuple[tuple[Template, ...], tuple[str, ...]]:
    (tmp_path / "skills.md").write_text(text, encoding="utf-8")
    return templates([SkillFolder(str(tmp_path / "skills.md"), "skills.md", "yours")])


def test_a_heading_starts_a_template_and_the_following_lines_are_its_text(
    tmp_path: Path,
) -> None:
    text = (
        "# Mine\nWords before.\n\n## /fix <file> <what>\nFix {what} in {file}.\n"
        "### Not a template\n\n```\n## /not one either\n```\n# /note [text]\nNote: {text}\n"
    )

    result, problems = parse_templates(tmp_path, text)

    body = "Fix {what} in {file}.\n### Not a template\n\n```\n## /not one either\n```"
    assert result == (
        Template("fix", (Placeholder("file"), Placeholder("what")), body, "skills.md"),
        NOTE,
    )
    assert problems == ()


def test_slash_lines_start_templates_in_a_file_without_template_headings(
    tmp_path: Path,
) -> None:
    text = (
        "# Mine\n\n/fix <file> <what>\nFix {what} in {file}.\n\n"
        "/note [text]\nNote: {text}\n/etc/passwd is no template, nor is\n/tmp or so.\n"
        "```\n/go\n```\n\n/test\nRun the tests.\n"
    )

    result, problems = parse_templates(tmp_path, text)

    note = "Note: {text}\n/etc/passwd is no template, nor is\n/tmp or so.\n```\n/go\n```"
    assert [(template.name, template.usage, template.text) for template in result] == [
        ("fix", "<file> <what>", "Fix {what} in {file}."),
        ("note", "[text]", note),
        ("test", "", "Run the tests."),
    ]
    assert problems == ()


def test_slash_lines_are_text_in_a_file_with_template_headings(tmp_path: Path) -> None:
    result, _ = parse_templates(tmp_path, "## /go\nType\n/fix <file>\nfirst.\n")

    assert [(template.name, template.text) for template in result] == [
        ("go", "Type\n/fix <file>\nfirst.")
    ]


def test_a_template_file_without_a_template_is_reported(tmp_path: Path) -> None:
    result, problems = parse_templates(tmp_path, "# Mine\n/fix file\nFix it.\n")

    assert (result, parse_templates(tmp_path, "# Nothing yet\n")) == ((), ((), ()))
    assert problems == (
        "skills.md, line 2: no template begins here: write it as ## /fix <arg>",
    )


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("## /a.b", "the template /a.b is ignored: use letters, digits and hyphens"),
        ("## /x file", "/x is ignored: write its arguments as <arg>"),
        ("## /x <a> <a>", "/x is ignored: write its arguments as <arg>"),
        ("## /\x1b[2J", "/\\x1b[2J is ignored"),
    ],
)
def test_an_invalid_template_is_one_notice_with_its_line(
    tmp_path: Path, heading: str, words: str
) -> None:
    result, problems = parse_templates(
        tmp_path, f"# T\n\n{heading}\nText.\n## /good\nText.\n"
    )

    assert [template.name for template in result] == ["good"]
    (problem,) = problems
    assert problem.startswith("skills.md, line 3: ")
    assert words in problem


def test_a_template_without_text_is_ignored(tmp_path: Path) -> None:
    assert parse_templates(tmp_path, "## /x\n\n## /y\nText.\n")[1] == (
        "skills.md, line 1: the template /x is ignored: it has no text",
    )


def test_an_unreadable_template_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b").mkdir()
    (tmp_path / "c").write_bytes(b"x" * (256 * 1024 + 1))

    places = [SkillFolder(str(tmp_path / name), name, "yours") for name in "abcd"]

    assert templates(places) == (
        (),
        (
            "a is ignored: it is not UTF-8 text",
            "b is ignored: b is a directory: list_files shows what is in it.",
            "c is ignored: it is larger than 256 KiB",
        ),
    )


@pytest.mark.parametrize(
    ("template", "words", "expected"),
    [
        (FIX, "a.py the loop in it", {"file": "a.py", "what": "the loop in it"}),
        (FIX, '"my file.py" that', {"file": "my file.py", "what": "that"}),
        (FIX, "a.py", {"file": "a.py"}),
        (FIX, "  ", {}),
        (FIX, "don't stop", {"file": "don't", "what": "stop"}),
        (NOTE, "--watch 'now", {"text": "--watch 'now"}),
        (PLAIN, "words", {}),
        (FIX, 'what="the loop" file=a.py', {"file": "a.py", "what": "the loop"}),
        (FIX, "file=a.py", {"file": "a.py"}),
        (FIX, "file=a.py now", {"file": "file=a.py", "what": "now"}),
        (FIX, "x=1 file=a.py", {"file": "x=1", "what": "file=a.py"}),
    ],
)
def test_arguments_fill_placeholders_in_order_and_the_last_takes_the_rest(
    template: Template, words: str, expected: dict[str, str]
) -> None:
    assert slot_values(template, words) == expected


def test_a_template_can_be_called_with_an_at_sign_and_named_values(
    directories: SkillDirectories,
) -> None:
    file = directories.project / ".refold/skills.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("## /fix <file> <what>\nFix {what} in {file}.\n\n## /model\nText.\n")
    shortcuts = directories.shortcuts("model")

    assert {
        typed: shortcuts.to_slash(typed)
        for typed in ("@fix file=a.py what=it", "@Fix", "@fix the loop", "@other a=b", "@model", "fix")
    } == {
        "@fix file=a.py what=it": "/fix file=a.py what=it", "@Fix": "/fix",
        "@fix the loop": None, "@other a=b": None, "@model": "/skill:model", "fix": None,
    }  # fmt: skip


def test_missing_template_values_are_named() -> None:
    assert missing(FIX, {"file": "a.py"}) == ("what",)
    assert missing(FIX, {"file": " ", "what": ""}) == ("file", "what")
    assert missing(NOTE, {}) == ()


def test_placeholders_in_filled_values_are_not_expanded() -> None:
    """A filled-in value may contain the text of another placeholder."""
    values = {"file": "{what}", "what": "it"}

    assert fill(FIX, values) == "Fix it in {what}."
    assert fill(NOTE, {}) == "Note: "
    assert fill(PLAIN, {}, "And so on.") == "Go on. Keep {this}.\n\nAnd so on."


def test_the_first_file_that_defines_a_template_wins(directories: SkillDirectories) -> None:
    files = [
        directories.project / ".refold/skills.md", directories.config / "skills.md",
        directories.project / ".agent0/skills.md", directories.home / ".config/agent0/skills.md",
    ]  # fmt: skip
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"## /all\nThat of {number}.\n## /own{number}\nText.\n")

    shortcuts = directories.shortcuts()

    assert [o.name for o in shortcuts.infos() if o.usage != "[task]"] == [
        "/all", "/init", "/own0", "/own1", "/own2", "/own3",
    ]  # fmt: skip
    assert shortcuts.expand("all", "", {}) == "That of 0."
    assert shortcuts.notices() == tuple(
        f"the template /all in {where} is ignored: the one in .refold/skills.md comes first"
        for where in (
            "~/.config/refold/skills.md", ".agent0/skills.md", "~/.config/agent0/skills.md",
        )
    )  # fmt: skip


def test_the_shipped_init_template_is_overridden_by_a_user_template(
    directories: SkillDirectories,
) -> None:
    shipped = directories.shortcuts().expand("init", "", {"instructions": "Be short."})
    (directories.config / "skills.md").write_text("## /init\nMine.\n")

    assert shipped.startswith("Write the file AGENTS.md for this repository")
    assert shipped.endswith("Be short.")
    assert directories.shortcuts().expand("init", "", {}) == "Mine."


def test_templates_of_an_untrusted_folder_are_ignored(
    directories: SkillDirectories,
) -> None:
    (directories.project / ".refold").mkdir()
    (directories.project / ".refold/skills.md").write_text("## /theirs\nDo.\n")

    from refold.skills.catalogue import Catalogue
    from refold.skills.slash_commands import Shortcuts

    around = directories.untrusting()

    assert Shortcuts(Catalogue(around), around, ()).find("theirs") is None


def test_commands_precede_templates_and_templates_precede_skills(
    directories: SkillDirectories,
) -> None:
    (directories.config / "skills.md").write_text(
        "## /help\nMy help.\n## /both\nOf the template.\n## /only <x>\nWith {x}.\n"
    )
    write(directories.config / "skills", "both")
    write(directories.config / "skills", "model")

    shortcuts = directories.shortcuts("help", "model")
    own = [o for o in shortcuts.infos() if o.about in ("For tests.", "My help.")]

    assert own == [
        ShortcutInfo("/skill:both", "[task]", "For tests."),
        ShortcutInfo("/skill:help", "", "My help."),
        ShortcutInfo("/skill:model", "[task]", "For tests."),
    ]
    assert shortcuts.find("help") is None
    assert shortcuts.expand("skill:help", "", {}) == "My help."
    assert shortcuts.expand("both", "", {}) == "Of the template."
    assert shortcuts.expand("skill:both", "It.", {}).startswith("Use the skill both: It.")
    assert shortcuts.notices() == ("/help is a command: yours is /skill:help",)


def test_a_template_without_its_arguments_fails_with_its_usage(
    directories: SkillDirectories,
) -> None:
    (directories.config / "skills.md").write_text(
        "## /fix <file> <what>\nFix {what} in {file}.\n"
    )
    shortcuts = directories.shortcuts()

    assert shortcuts.missing("fix", "a.py") == ("what",)
    assert shortcuts.expand("fix", "a.py", {"what": "it"}) == "Fix it in a.py."
    with pytest.raises(BadInput, match=r"^/fix takes <file> <what>: what is missing$"):
        shortcuts.expand("fix", "a.py", {})


def test_a_skill_can_be_called_as_a_command_with_a_task(
    directories: SkillDirectories,
) -> None:
    folder = write(directories.config / "skills", "sums", body="Add it up.")

    expand = directories.shortcuts().expand("sums", "this year's", {})

    assert expand == (
        f"Use the skill sums: this year's\n\nThe skill sums is in {folder}\n\nAdd it up."
    )


def test_an_unknown_slash_command_is_an_error(directories: SkillDirectories) -> None:
    shortcuts = directories.shortcuts()

    assert shortcuts.missing("nothing", "x") == ()
    with pytest.raises(BadInput, match="there is no command or skill /nothing"):
        shortcuts.expand("nothing", "x", {})
