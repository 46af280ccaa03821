"""Files of a folder that would instruct the model are found without reading them."""

import os
from pathlib import Path

import pytest

from refold.config.folder_settings import untrusted_texts
from refold.config.project import FolderText, FolderTexts, describe_texts, texts
from refold.config.trusted_folders import TrustedFolders


@pytest.fixture
def top(tmp_path: Path) -> Path:
    path = Path(os.path.realpath(tmp_path))
    (path / "inner").mkdir()
    return path


def test_an_empty_folder_has_no_instruction_files(top: Path) -> None:
    result = texts(top)

    assert (result.root, result.found, result.names) == (str(top), (), "")


def test_instruction_files_from_the_repository_root_down_are_listed_with_size(
    top: Path,
) -> None:
    (top / ".git").mkdir()
    (top / ".refold/prompts/mine").mkdir(parents=True)
    (top / ".refold/context.md").write_text("x" * 1234)
    (top / "inner/AGENTS.md").symlink_to("gone")
    (top / "inner/.agents/skills").mkdir(parents=True)
    (top / "inner/.agents/skills/.hidden").touch()
    (top / "inner/.refold").mkdir()
    (top / "inner/.refold/skills.md").touch()

    result = texts(top / "inner")

    assert describe_texts(result) == (
        "../.refold/context.md (1,234 bytes)",
        "AGENTS.md (cannot be read)",
        "../.refold/prompts (1 in it)",
        ".refold/skills.md (0 bytes)",
    )
    assert [text.folder for text in result.found] == [
        str(top), str(top / "inner"), str(top), str(top / "inner"),
    ]  # fmt: skip


def test_a_long_list_of_instruction_files_is_abbreviated() -> None:
    many = tuple(FolderText("/", f"{n}.md", "") for n in range(10))

    assert FolderTexts("/", many).names.endswith("7.md and 2 more")


def test_only_instructions_outside_trusted_folders_are_reported_as_new(top: Path) -> None:
    (top / ".git").mkdir()
    (top / "AGENTS.md").touch()
    (top / "inner/AGENTS.md").touch()
    folders = TrustedFolders(top / "own/folders.toml")

    before = untrusted_texts(top / "inner", folders).names
    folders.trust_texts(top / "inner")
    half = untrusted_texts(top / "inner", folders).names
    folders.trust_texts(top)

    assert (before, half) == ("../AGENTS.md, AGENTS.md", "../AGENTS.md")
    assert untrusted_texts(top / "inner", folders).found == ()
