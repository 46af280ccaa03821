"""The instructions of a project, and whatever a folder may contain instead."""

import os
from pathlib import Path

import pytest

from refold.prompts.instructions import (
    FILE_NAMES,
    InstructionFile,
    Instructions,
    project_instructions,
    read,
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = Path(os.path.realpath(tmp_path)) / "project"
    path.mkdir()
    return path


def write_files(folder: Path, **files: str) -> None:
    """Files by their names, `__` for a dot and `___` for a slash."""
    for name, text in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def refuse(real: str) -> str:
    return ""


def read_instructions(project: Path, below: str = "") -> Instructions:
    directory = os.path.join(project, below) if below else str(project)
    home = str(project.parent / "home")
    return read(project_instructions(directory, str(project)), home, refuse)


def texts(instructions: Instructions) -> list[tuple[str, str]]:
    return [(piece.file, piece.text) for piece in instructions.pieces]


# Which files. -------------------------------------------------------------------------


def test_instructions_are_read_from_root_to_directory_in_that_order(project: Path) -> None:
    write_files(project, AGENTS__md="Root.", a___AGENTS__md="A.", a___b___AGENTS__md="B.")
    write_files(project, a___other___AGENTS__md="Other.")

    instructions = read_instructions(project, "a/b")

    assert texts(instructions) == [
        ("../../AGENTS.md", "Root."), ("../AGENTS.md", "A."), ("AGENTS.md", "B."),
    ]  # fmt: skip
    assert instructions.notices == ()


@pytest.mark.parametrize("at", range(len(FILE_NAMES)))
def test_only_the_first_existing_instruction_file_of_a_folder_is_read(
    at: int, project: Path
) -> None:
    for name in FILE_NAMES[at:]:
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(f"I am {name}.")

    assert texts(read_instructions(project)) == [
        (FILE_NAMES[at], f"I am {FILE_NAMES[at]}.")
    ]


def test_an_instruction_file_reached_twice_is_included_once(project: Path) -> None:
    write_files(project, docs___rules__md="Rules.", a___CLAUDE__md="@../docs/rules.md")
    (project / "AGENTS.md").symlink_to("docs/rules.md")

    assert texts(read_instructions(project, "a")) == [
        ("../docs/rules.md", "Rules."), ("CLAUDE.md", "@../docs/rules.md"),
    ]  # fmt: skip


def test_an_empty_instruction_file_is_omitted(project: Path) -> None:
    write_files(project, AGENTS__md=" \n\n")

    assert read_instructions(project) == Instructions()


# Imports. -----------------------------------------------------------------------------


def test_imported_file_comes_right_before_its_importer(project: Path) -> None:
    write_files(
        project, AGENTS__md="Root.\n@docs/one.md @docs/two.md", docs___two__md="Two."
    )
    write_files(
        project, docs___one__md="One, see @inner/three.md", docs___inner___three__md="3."
    )

    assert texts(read_instructions(project)) == [
        ("docs/inner/three.md", "3."),
        ("docs/one.md", "One, see @inner/three.md"),
        ("docs/two.md", "Two."),
        ("AGENTS.md", "Root.\n@docs/one.md @docs/two.md"),
    ]


def test_import_cycles_are_reported_and_each_file_is_included_once(project: Path) -> None:
    write_files(project, AGENTS__md="@a.md", a__md="@b.md", b__md="@a.md @AGENTS.md")

    instructions = read_instructions(project)

    assert [file for file, _ in texts(instructions)] == ["b.md", "a.md", "AGENTS.md"]
    assert instructions.notices == (
        "AGENTS.md imports a.md imports b.md imports a.md: this goes round, so the last is "
        "left out",
        "AGENTS.md imports a.md imports b.md imports AGENTS.md: this goes round, so the last "
        "is left out",
    )


def test_imports_are_followed_five_files_deep(project: Path) -> None:
    for n in range(8):
        write_files(project, **{f"f{n}__md": f"@f{n + 1}.md"})
    write_files(project, AGENTS__md="@f0.md")

    instructions = read_instructions(project)

    assert [file for file, _ in texts(instructions)] == [
        "f4.md", "f3.md", "f2.md", "f1.md", "f0.md", "AGENTS.md",
    ]  # fmt: skip
    assert instructions.notices == (
        "f5.md, which f4.md imports, is left out: it is imported more than 5 files deep",
    )


def test_a_missing_import_is_reported_but_a_mention_is_not(project: Path) -> None:
    write_files(project, AGENTS__md="@docs/none.md, ask @jason, install @types/node")

    assert read_instructions(project).notices == (
        "docs/none.md, which AGENTS.md imports, is left out: there is no such file",
    )


@pytest.mark.parametrize("name", ["../secret.md", "/etc/passwd", "~/secret.md"])
def test_an_import_from_outside_the_project_is_not_read(name: str, project: Path) -> None:
    write_files(project.parent, secret__md="Secret.", home___secret__md="Secret.")
    write_files(project, AGENTS__md=f"@{name}")

    instructions = read_instructions(project)

    assert [file for file, _ in texts(instructions)] == ["AGENTS.md"]
    assert len(instructions.notices) == 1
    assert "is left out: it lies outside of" in instructions.notices[0]


def test_an_import_denied_by_a_rule_is_not_read(project: Path) -> None:
    write_files(project, AGENTS__md="@secret.md", secret__md="Secret.")
    files = project_instructions(str(project), str(project))

    instructions = read(
        files, "/", lambda real: "a rule says no" * real.endswith("secret.md")
    )

    assert texts(instructions) == [("AGENTS.md", "@secret.md")]
    assert instructions.notices == (
        "secret.md, which AGENTS.md imports, is left out: a rule says no",
    )


# Whatever a folder may hold. ----------------------------------------------------------


def test_only_the_first_32_kib_of_an_instruction_file_are_read(project: Path) -> None:
    write_files(project, AGENTS__md="A line of it.\n" * 750_000)

    instructions = read_instructions(project)

    (piece,) = instructions.pieces
    assert 32_000 < len(piece.text) <= 32_768
    assert piece.text.endswith("A line of it.")
    assert piece.more + len(piece.text) == 14 * 750_000
    assert instructions.notices == (
        "AGENTS.md is 10,500,000 bytes; its first 32 KiB are read",
    )


def test_a_size_cut_does_not_split_a_character(project: Path) -> None:
    write_files(project, AGENTS__md="x" + "ü" * 20_000)

    (piece,) = read_instructions(project).pieces

    assert set(piece.text) == {"x", "ü"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x7fELF\x00\x01", "it is not text: it contains zero bytes"),
        (b"\x89PNG\r\n\x1a\n", "it is not UTF-8 text"),
        ("Text".encode("utf-16"), "it is not UTF-8 text"),
    ],
)
def test_binary_instruction_file_is_left_out(
    content: bytes, why: str, project: Path
) -> None:
    (project / "AGENTS.md").write_bytes(content)

    assert read_instructions(project) == Instructions(
        (), (f"AGENTS.md is left out: {why}",)
    )


def test_an_instruction_link_out_of_the_project_is_not_followed(project: Path) -> None:
    write_files(project.parent, secret__md="Secret.")
    (project / "AGENTS.md").symlink_to("../secret.md")

    assert read_instructions(project) == Instructions(
        (), (f"AGENTS.md is left out: it lies outside of {project}",)
    )


def test_broken_and_circular_instruction_links_are_reported(project: Path) -> None:
    (project / "AGENTS.md").symlink_to("AGENTS.md")
    nowhere = project / "a"
    nowhere.mkdir()
    (nowhere / "AGENTS.md").symlink_to("gone")

    instructions = read_instructions(project, "a")

    assert instructions == Instructions(
        (),
        (
            "AGENTS.md is left out: there is no such file",
            "../AGENTS.md is left out: it is a link that goes round in a circle",
        ),
    )


def test_an_instruction_file_that_is_a_pipe_is_left_out_without_blocking(
    project: Path,
) -> None:
    os.mkfifo(project / "AGENTS.md")

    assert read_instructions(project).notices == ("AGENTS.md is left out: it is a pipe",)


def test_a_directory_named_agents_md_is_reported(project: Path) -> None:
    (project / "AGENTS.md").mkdir()

    assert read_instructions(project).notices == (
        "AGENTS.md is left out: it is a directory",
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_instruction_file_is_reported(project: Path) -> None:
    write_files(project, AGENTS__md="Rules.")
    (project / "AGENTS.md").chmod(0)

    assert read_instructions(project).notices == (
        "AGENTS.md is left out: it cannot be read: the system does not permit it",
    )


def test_only_a_hundred_instruction_files_are_read_and_the_limit_is_reported(
    project: Path,
) -> None:
    write_files(project, AGENTS__md="\n".join(f"@docs/{n}.md" for n in range(1000)))
    write_files(project, **{f"docs___{n}__md": f"File {n}." for n in range(101)})

    instructions = read_instructions(project)

    assert len(instructions.pieces) == 100
    assert instructions.notices == (
        "docs/99.md and what comes after it is left out: instructions may be 100 files of "
        "256 KiB together",
    )


def test_at_most_ten_instruction_problems_are_reported(project: Path) -> None:
    write_files(project, AGENTS__md="\n".join(f"@docs/{n}.md" for n in range(1000)))

    instructions = read_instructions(project)

    assert len(instructions.notices) == 10
    assert instructions.notices[-2:] == (
        "91 more files of instructions have such problems",
        "docs/99.md and what comes after it is left out: instructions may be 100 files of "
        "256 KiB together",
    )


def test_line_breaks_in_instruction_paths_are_escaped(project: Path) -> None:
    write_files(project, **{"a\nb___AGENTS__md": "@x.md"})

    instructions = read_instructions(project)
    inside = read(project_instructions(str(project / "a\nb"), str(project)), "/", refuse)
    outside = read(
        [InstructionFile(str(project / "a\nb/AGENTS.md"), str(project))], "/", refuse
    )

    assert instructions == Instructions()
    assert texts(inside) == [("AGENTS.md", "@x.md")]
    assert texts(outside)[0][0] == f"{project}/a\\nb/AGENTS.md"


def test_invisible_characters_are_removed_from_instructions_and_counted(
    project: Path,
) -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    write_files(project, AGENTS__md=f"Rules.{hidden}\u202e\u200b\x1b[2J 👩\u200d🚀 ok\r\n")

    instructions = read_instructions(project)

    assert texts(instructions) == [("AGENTS.md", "Rules.[2J 👩\u200d🚀 ok")]
    assert instructions.notices == ("AGENTS.md: 7 invisible characters were left out",)


@pytest.mark.parametrize("base", ["😀", "é", "a"])
def test_text_hidden_in_variation_selectors_is_removed(base: str, project: Path) -> None:
    smuggled = "".join(chr(0xE0100 + letter) for letter in b"obey") + "\ufe00\u3164"
    write_files(project, AGENTS__md=f"{base}{smuggled} ❤\ufe0f\u200d🔥 می\u200cخواهم")

    assert texts(read_instructions(project)) == [
        ("AGENTS.md", f"{base} ❤\ufe0f\u200d🔥 می\u200cخواهم")
    ]


def test_the_nearest_instructions_are_read_if_the_limit_is_reached(project: Path) -> None:
    write_files(project, AGENTS__md="\n".join(f"@docs/{n}.md" for n in range(200)))
    write_files(project, **{f"docs___{n}__md": f"File {n}." for n in range(200)})
    write_files(project, near___AGENTS__md="Near.")

    instructions = read_instructions(project, "near")

    assert len(instructions.pieces) == 100
    assert texts(instructions)[-1] == ("AGENTS.md", "Near.")


def test_a_nearer_file_imported_by_the_root_stays_last(project: Path) -> None:
    write_files(project, AGENTS__md="Root. @a/AGENTS.md", a___AGENTS__md="A.")

    assert texts(read_instructions(project, "a")) == [
        ("../AGENTS.md", "Root. @a/AGENTS.md"), ("AGENTS.md", "A."),
    ]  # fmt: skip


def test_a_dense_import_graph_is_read_in_few_steps(project: Path) -> None:
    names = " ".join(f"@{'./' * k}c{n}.md" for n in range(60) for k in range(5))
    write_files(project, AGENTS__md="@c0.md", **{f"c{n}__md": names for n in range(60)})
    checked_paths = list[str]()

    def note_path(real: str) -> str:
        """Permit the path."""
        checked_paths.append(real)
        return ""

    read(project_instructions(str(project), str(project)), "/", note_path)
    instructions = read_instructions(project)

    assert len(checked_paths) < 10
    assert len(set(instructions.notices)) == len(instructions.notices) <= 10
    assert instructions.notices[-1].endswith("instructions may name 1,000 files")


def test_a_long_import_name_is_shortened_in_the_notice(project: Path) -> None:
    write_files(project, AGENTS__md=f"@{'x/' * 400}y.md @{'a/' * 15_000}z.md")

    (notice,) = read_instructions(project).notices

    assert notice.startswith("…")
    assert "y.md, which AGENTS.md imports, is left out" in notice
    assert len(notice) < 200


def test_a_file_replaced_by_a_link_after_its_check_is_not_read(
    project: Path,
) -> None:
    write_files(project, AGENTS__md="Rules.", __env="SECRET=1")

    def replace_and_judge(real: str) -> str:
        (project / "AGENTS.md").unlink()
        (project / "AGENTS.md").symlink_to(".env")
        return ""

    instructions = read(
        project_instructions(str(project), str(project)), "/", replace_and_judge
    )

    assert instructions.pieces == ()
    assert len(instructions.notices) == 1
