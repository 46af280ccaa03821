"""What the model can read of a skill: its text and its files, and nothing outside."""

import os
from collections.abc import Mapping

import anyio
import pytest

from refold.errors import ToolFailed
from refold.tools.contract import Reply, Tool
from refold.tools.skills import list_skills, read_skill
from refold.values.display import Note
from refold.values.tools import Effect
from tests.skills.surrounded import SkillDirectories, write, write_skill_file


def use(
    directories: SkillDirectories, tool: Tool, arguments: Mapping[str, object]
) -> Reply:
    async def run_tool() -> Reply:
        return await tool.run(**arguments, skills=directories.catalogue())

    return anyio.run(run_tool)


def test_reading_a_skill_names_its_folder_and_its_files(
    directories: SkillDirectories,
) -> None:
    skill = write(directories.config / "skills", "sums", body="# Sums\n\nAdd it up.")
    for name in (
        "scripts/add.py",
        "assets/a.txt",
        "assets/deep/b.txt",
        ".hidden",
        "SKILL.md",
    ):
        (skill / name).parent.mkdir(parents=True, exist_ok=True)
        (skill / name).touch()

    reply = use(directories, read_skill, {"name": "sums"})

    assert reply.text == (
        f"The skill sums is in {skill}\n\n# Sums\n\nAdd it up.\n\n"
        "Its files (read_skill shows one, bash runs scripts by their whole path):\n"
        "- scripts/add.py\n- assets/a.txt\n- assets/deep/b.txt"
    )
    assert reply.shown == (Note("read the skill sums"),)


def test_a_file_of_a_skill_is_read_as_text(directories: SkillDirectories) -> None:
    skill = write(directories.config / "skills", "sums")
    (skill / "a.txt").write_bytes(b"one\r\ntwo\r\n")

    assert use(directories, read_skill, {"name": "sums", "file": "a.txt"}) == Reply(
        "one\ntwo\n", (Note("read a.txt of sums"),)
    )


@pytest.mark.parametrize("name", ["pdf-writer", "/pdf-writer", "skill:PDF-writer"])
def test_files_of_shipped_skills_are_read(directories: SkillDirectories, name: str) -> None:
    reply = use(directories, read_skill, {"name": name, "file": "scripts/check_pdf.py"})

    assert "Open a PDF again" in reply.text


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("../other/SKILL.md", "leads"),
        ("/etc/passwd", "leads"),
        ("link", "leads"),
        ("folder/up/passwd", "leads"),
        ("nothing.txt", "has no file 'nothing.txt'. Its files: binary, large, link, folder/up."),
        ("binary", "not text"),
        ("pipe", "is a device, pipe or socket"),
        ("folder", "is a directory"),
        ("large", "is larger than 2 MiB"),
        ("a\0b", "cannot be a path"),
    ],
)  # fmt: skip
def test_read_skill_refuses_links_pipes_binary_and_outside_files(
    directories: SkillDirectories, file: str, words: str
) -> None:
    write(directories.config / "skills", "other")
    skill = write(directories.config / "skills", "sums")
    (skill / "link").symlink_to("/etc/passwd")
    (skill / "folder").mkdir()
    (skill / "folder" / "up").symlink_to("/etc")
    (skill / "binary").write_bytes(b"\x00\x01")
    (skill / "large").write_bytes(b"")
    os.truncate(skill / "large", 2 * 1024 * 1024 + 1)
    os.mkfifo(skill / "pipe")

    with pytest.raises(ToolFailed) as caught:
        use(directories, read_skill, {"name": "sums", "file": file})

    assert words in str(caught.value)


@pytest.mark.parametrize(
    "file", ["../design/SKILL.md", "/etc/passwd", "../../catalogue.py"]
)
def test_read_skill_refuses_paths_outside_a_shipped_skill(
    directories: SkillDirectories, file: str
) -> None:
    with pytest.raises(ToolFailed):
        use(directories, read_skill, {"name": "pdf-writer", "file": file})


def test_read_skill_of_an_unknown_name_suggests_the_nearest(
    directories: SkillDirectories,
) -> None:
    with pytest.raises(
        ToolFailed, match=r"there is no skill 'pdf-write'; did you mean pdf-w"
    ):
        use(directories, read_skill, {"name": "pdf-write"})


def test_a_skill_written_during_the_session_is_found(directories: SkillDirectories) -> None:
    catalogue = directories.catalogue()
    before = catalogue.list_text(4000)
    write(directories.project / ".refold/skills", "new", body="As new.")

    assert "As new." in catalogue.text_of("new")
    assert "new" in dict(catalogue.search("tests"))
    assert catalogue.list_text(4000) == before  # the cached part of the prompt is unchanged


def test_a_skill_that_became_invalid_fails_with_the_reason(
    directories: SkillDirectories,
) -> None:
    write(directories.project / ".refold/skills", "old")
    catalogue = directories.catalogue()
    assert catalogue.scan.skills[0].name == "old"
    write_skill_file(directories.project / ".refold/skills", "old", "---\n")

    with pytest.raises(
        ToolFailed, match=r"^The skill old cannot be read: the front matter"
    ):
        catalogue.text_of("old")


def test_a_skill_with_very_many_files_lists_a_hundred(
    directories: SkillDirectories,
) -> None:
    skill = write(directories.config / "skills", "many")
    for number in range(150):
        (skill / f"{number:03}.txt").touch()

    lines = directories.catalogue().text_of("many").splitlines()

    assert lines[-2:] == ["- 099.txt", "- and more than 100 files in all"]


def test_a_query_finds_skills_that_contain_all_its_words(
    directories: SkillDirectories,
) -> None:
    write(directories.config / "skills", "sums", "Add numbers.")
    write(directories.config / "skills", "words", "Count words and numbers.")

    assert use(directories, list_skills, {"query": "NUMBERS count"}) == Reply(
        "- words: Count words and numbers.", (Note("1 skill"),)
    )
    assert (
        use(directories, list_skills, {"query": "xyz"}).text
        == "There are no skills about 'xyz'."
    )


def test_a_long_skill_list_is_cut_and_counts_the_omitted_skills(
    directories: SkillDirectories,
) -> None:
    for number in range(60):
        write(directories.config / "skills", f"s{number}", "d" * 1000)

    text = use(directories, list_skills, {}).text

    assert len(text) < 30_000
    assert text.endswith(" more: ask with a query)")


def test_skill_tools_are_read_only() -> None:
    assert [(t.effect, t.signature().needs) for t in (list_skills, read_skill)] == [
        (Effect.LOOK, ("skills",))
    ] * 2


@pytest.mark.parametrize("name", [".env", "key.pem", "up/.env"])
def test_read_skill_refuses_files_that_may_contain_secrets(
    directories: SkillDirectories, name: str
) -> None:
    (directories.project / ".refold/skills").mkdir(parents=True)
    (directories.project / ".refold/skills/whole").symlink_to("../..")
    write_skill_file(
        directories.project.parent, "project", "---\nname: whole\ndescription: All.\n---\n"
    )
    (directories.project / name).parent.mkdir(exist_ok=True)
    (directories.project / name).write_text("token-7")

    with pytest.raises(ToolFailed, match="may contain secrets"):
        use(directories, read_skill, {"name": "whole", "file": name})


def test_read_skill_refuses_files_denied_by_a_rule(directories: SkillDirectories) -> None:
    skill = write(directories.config / "skills", "sums")
    (skill / "a.txt").write_text("private")
    denied = directories.catalogue().with_restrictions(
        lambda real: f"{os.path.basename(real)} is denied"
    )

    for file in ("a.txt", "SKILL.md"):
        with pytest.raises(ToolFailed, match=f"{file} is not read: {file} is denied"):
            denied.content("sums", file)
    with pytest.raises(ToolFailed, match=r"SKILL\.md is denied"):
        denied.text_of("sums")


def test_invisible_characters_in_a_skill_are_removed(directories: SkillDirectories) -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    write(
        directories.config / "skills", "sums", f"Adds{hidden} up.", f"Do\u202e it{hidden}."
    )

    assert directories.catalogue().skill("sums").description == "Adds up."
    assert "\n\nDo it." in use(directories, read_skill, {"name": "sums"}).text
