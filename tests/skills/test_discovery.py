"""Which skills are found, which win, and errors in the others."""

import os
from pathlib import Path

import pytest

from refold.skills.catalogue import Catalogue, find_untrusted
from refold.skills.directories import SkillFolder, folder_of_shipped
from refold.skills.discovery import MAX_FILE_BYTES, MAX_SKILLS, find_skills
from tests.skills.surrounded import SkillDirectories, place, write, write_skill_file


def names(found_: object) -> list[str]:
    return [skill.name for skill in found_.skills]  # type: ignore[attr-defined] - any Found


def test_skills_are_found_in_every_folder_in_precedence_order(
    directories: SkillDirectories,
) -> None:
    sub = directories.project / "sub"
    places = [
        sub / ".refold/skills", sub / ".agents/skills", sub / ".claude/skills",
        directories.project / ".refold/skills", directories.project / ".agents/skills",
        directories.project / ".claude/skills",
        directories.config / "skills", directories.home / ".agents/skills", directories.home / ".claude/skills",
    ]  # fmt: skip
    for number, folder in enumerate(places):
        write(folder, f"own-{number}")
        write(folder, "everywhere", f"That of {number}.")

    skills = Catalogue(directories.around(sub)).scan.skills

    assert [s.name for s in skills if s.whose != "shipped"] == [
        "everywhere", *(f"own-{number}" for number in range(9)),
    ]  # fmt: skip
    assert skills[0].description == "That of 0."
    assert [s.where for s in skills[1:10]] == [
        ".refold/skills", ".agents/skills", ".claude/skills",
        "../.refold/skills", "../.agents/skills", "../.claude/skills",
        "~/.config/refold/skills", "~/.agents/skills", "~/.claude/skills",
    ]  # fmt: skip


def test_the_shipped_skills_are_always_found(directories: SkillDirectories) -> None:
    skills = directories.catalogue().scan

    assert names(skills) == [
        "api-design", "code-review", "design", "dockerfile-builder", "docx-writer",
        "excel-writer", "pdf-writer", "ppt-writer",
    ]  # fmt: skip
    assert skills.problems == ()


def test_an_overridden_skill_is_reported(directories: SkillDirectories) -> None:
    write(directories.project / ".refold/skills", "mine", "One.")
    write(directories.project / ".claude/skills", "mine", "Another.")
    write(
        directories.home / ".claude/skills", "mine", "One."
    )  # the same again is not a loss

    problems = directories.catalogue().notices()

    assert problems == (
        "the skill mine in .claude/skills is ignored: the one in .refold/skills comes first",
    )


def test_a_user_skill_overrides_a_shipped_skill_without_a_start_notice(
    directories: SkillDirectories,
) -> None:
    write(directories.config / "skills", "pdf-writer", "My own way.")

    catalogue = directories.catalogue()

    assert catalogue.skill("pdf-writer").description == "My own way."
    assert catalogue.notices() == ()
    assert catalogue.every_notice() == (
        "the skill pdf-writer in refold is ignored: the one in ~/.config/refold/skills "
        "comes first",
    )


def test_a_project_skill_that_overrides_a_shipped_skill_is_reported(
    directories: SkillDirectories,
) -> None:
    write(directories.project / ".claude/skills", "pdf-writer", "Do as I say.")

    assert directories.catalogue().notices() == (
        "the skill pdf-writer in refold is ignored: the one in .claude/skills comes first",
    )


def test_skills_and_templates_of_an_untrusted_folder_are_ignored(
    directories: SkillDirectories,
) -> None:
    write(directories.project / ".claude/skills", "theirs")
    (directories.project / ".agent0").mkdir()
    (directories.project / ".agent0/skills.md").write_text("## /x\nDo.\n")

    found_ = Catalogue(directories.untrusting()).scan

    assert "theirs" not in names(found_)
    assert find_untrusted(directories.untrusting()) == (
        ".claude/skills",
        ".agent0/skills.md",
    )
    assert find_untrusted(directories.around()) == ()


def test_trust_does_not_cover_skills_of_the_parent_folder(
    directories: SkillDirectories,
) -> None:
    sub = directories.project / "sub"
    write(sub / ".claude/skills", "near")
    write(directories.project / ".claude/skills", "above")

    found_ = Catalogue(directories.around(sub, trusted=sub)).scan

    assert "near" in names(found_)
    assert "above" not in names(found_)
    assert found_.problems == ()


def test_a_skills_folder_reached_by_a_link_is_read_once(
    directories: SkillDirectories,
) -> None:
    write(directories.project / ".agents/skills", "one")
    (directories.project / ".claude").mkdir()
    (directories.project / ".claude/skills").symlink_to("../.agents/skills")

    found_ = directories.catalogue().scan

    assert (names(found_)[0], found_.problems) == ("one", ())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("no front matter", "SKILL.md, line 1: the file does not begin with a line ---"),
        ("---\nname: x\n---\n", "SKILL.md: the front matter has no text as 'description'"),
        ("---\ndescription: d\n---\n", "SKILL.md: the front matter has no text as 'name'"),
        ("---\nname: [x]\ndescription: d\n---\n", "has no text as 'name'"),
        ("---\nname: y\ndescription: d\n---\n", "it is named 'y', and its folder 'x'"),
        ("---\nname: X\ndescription: d\n---\n", "the name 'X' is not of lower-case letters"),
        ("---\nname: a--b\ndescription: d\n---\n", "single hyphens"),
        ('---\nname: "x\\ny"\ndescription: d\n---\n', "the name 'x\\\\ny' is not"),
        (f"---\nname: {'a' * 65}\ndescription: d\n---\n", "the name has 65 characters"),
        (f"---\nname: x\ndescription: {'d' * 1025}\n---\n", "has 1,025 characters; 1,024"),
        (b"---\nname: x\ndescription: \xff\n---\n", "SKILL.md, line 3: this is not UTF-8"),
        (b"\x7fELF\x00\x01", "SKILL.md, line 1: the file does not begin with a line ---"),
        (b"x" * (MAX_FILE_BYTES + 1), "SKILL.md: it is larger than 256 KiB"),
    ],
)  # fmt: skip
def test_invalid_front_matter_is_one_notice_and_other_skills_are_found(
    tmp_path: Path, content: str | bytes, words: str
) -> None:
    write_skill_file(tmp_path / "skills", "x", content)
    write(tmp_path / "skills", "good")

    skills = find_skills([place(tmp_path / "skills")])

    assert names(skills) == ["good"]
    (problem,) = skills.problems
    assert problem.startswith("the skill in skills/x is ignored: ")
    assert words in problem


def test_a_skill_file_of_ten_megabytes_is_not_read(tmp_path: Path) -> None:
    skill = write_skill_file(tmp_path / "skills", "x", "")
    os.truncate(skill / "SKILL.md", 10 * 1024 * 1024)

    (problem,) = find_skills([place(tmp_path / "skills")]).problems

    assert problem.endswith("SKILL.md: it is larger than 256 KiB")


def test_a_skill_file_that_is_a_pipe_is_reported_without_blocking(tmp_path: Path) -> None:
    (tmp_path / "skills" / "x").mkdir(parents=True)
    os.mkfifo(tmp_path / "skills" / "x" / "SKILL.md")

    (problem,) = find_skills([place(tmp_path / "skills")]).problems

    assert "is a device, pipe or socket" in problem


def test_skill_links_out_of_a_project_are_not_followed(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    write(outside, "linked")
    write(outside, "far")
    folder = project / "skills"
    folder.mkdir(parents=True)
    (folder / "linked").symlink_to(outside / "linked")
    (folder / "file").mkdir()
    (folder / "file" / "SKILL.md").symlink_to(outside / "far" / "SKILL.md")
    (project / "all").symlink_to(outside)

    skills = find_skills([place(folder), place(project / "all", bound=project)])

    assert names(skills) == []
    assert [p.partition(" is ignored")[0].partition(" are ignored")[0] for p in skills.problems] == [
        "the skill in skills/file", "the skill in skills/linked", "the skills in all",
    ]  # fmt: skip
    assert all("a link that leads out" in problem for problem in skills.problems)


def test_user_skills_may_be_symbolic_links(directories: SkillDirectories) -> None:
    path = directories.home / "dotfiles"
    write(path, "whole")
    write(path, "file")
    skills = directories.home / ".claude/skills"
    (skills / "file").mkdir(parents=True)
    (skills / "whole").symlink_to(path / "whole")
    (skills / "file" / "SKILL.md").symlink_to(path / "file" / "SKILL.md")

    catalogue = directories.catalogue()

    assert [s.name for s in catalogue.scan.skills if s.whose == "yours"] == [
        "file",
        "whole",
    ]
    assert "Do it." in catalogue.text_of("whole")
    assert "Do it." in catalogue.text_of("file")


def test_circular_links_in_a_skills_folder_are_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    write(folder, "good")
    (folder / "round").symlink_to("round")
    (folder / "good" / "again").symlink_to(folder)

    skills = find_skills([place(folder)])

    assert names(skills) == ["good"]
    assert skills.problems == ()


def test_skills_above_the_maximum_number_are_ignored_with_a_notice(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    folder.mkdir()
    for number in range(MAX_SKILLS + 50):
        (folder / f"s{number:05}").mkdir()
    write(folder, "s00000")
    for number in range(1, 9):
        write_skill_file(folder, f"s{number:05}", "bad")

    skills = find_skills([place(folder)])

    assert names(skills) == ["s00000"]
    assert skills.problems[0] == (
        f"skills has more than {MAX_SKILLS} folders: only the first {MAX_SKILLS} skills are used"
    )


def test_start_notices_list_five_skill_problems_and_count_the_others(
    directories: SkillDirectories,
) -> None:
    for number in range(9):
        write_skill_file(directories.project / ".claude/skills", f"bad-{number}", "bad")

    notices = directories.catalogue().notices()

    assert len(notices) == 6
    assert notices[-1] == "and 4 more skills are ignored: refold skills list"


def test_control_characters_in_skill_names_are_escaped(tmp_path: Path) -> None:
    write_skill_file(tmp_path / "skills", "a\n\x1b[2Jb", "bad")

    (problem,) = find_skills([place(tmp_path / "skills")]).problems

    assert problem.isprintable()


@pytest.mark.parametrize("name", ["skill.md", "Skill.md"])
def test_a_misspelt_skill_file_name_is_reported(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "skills" / "x"
    folder.mkdir(parents=True)
    (folder / name).write_text("---\nname: x\ndescription: d\n---\n")

    (problem,) = find_skills([place(tmp_path / "skills")]).problems

    assert problem.endswith(f"it has a file {name}: name it SKILL.md")


def test_other_files_in_a_skills_folder_are_ignored_without_a_notice(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "skills"
    for name in (".git", "notes", "notes/deep"):
        (folder / name).mkdir(parents=True)
    (folder / "README.md").write_text("Read me.")

    assert find_skills(
        [place(folder), place(tmp_path / "nothing"), place(folder / "README.md")]
    ) == (find_skills([]))


def test_a_skill_without_model_invocation_is_hidden_from_the_model(
    directories: SkillDirectories,
) -> None:
    write_skill_file(
        directories.config / "skills",
        "mine",
        "---\nname: mine\ndescription: d\ndisable-model-invocation: true\n---\n",
    )

    catalogue = directories.catalogue()

    assert "mine" in names(catalogue.scan)
    assert "mine" not in catalogue.list_text(4000)
    assert "mine" not in dict(catalogue.search(""))


def test_shipped_skills_may_be_symbolic_links(tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "pdf-writer"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to(Path(folder_of_shipped()) / "pdf-writer" / "SKILL.md")

    skills = find_skills([SkillFolder(str(tmp_path / "skills"), "refold", "shipped")])

    assert names(skills) == ["pdf-writer"]
