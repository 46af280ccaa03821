"""Files of a folder that would instruct the model are found without reading them."""

import os
from pathlib import Path

import pytest

from refold.config.folder_settings import untrusted_texts
from refold.config.project import FolderText, FolderTexts, describe_texts, texts
from refold.config.trusted_folders import TrustedFolders


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = Path(os.path.realpath(tmp_path))
    (path / "inner").mkdir()
    return path


def test_an_empty_folder_has_no_instruction_files(root: Path) -> None:
    listed = texts(root)

    assert (listed.root, listed.found, listed.names) == (str(root), (), "")


def test_instruction_files_from_the_repository_root_down_are_listed_with_size(
    root: Path,
) -> None:
    (root / ".git").mkdir()
    (root / ".refold/prompts/mine").mkdir(parents=True)
    (root / ".refold/context.md").write_text("x" * 1234)
    (root / "inner/AGENTS.md").symlink_to("gone")
    (root / "inner/.agents/skills").mkdir(parents=True)
    (root / "inner/.agents/skills/.hidden").touch()
    (root / "inner/.refold").mkdir()
    (root / "inner/.refold/skills.md").touch()

    listed = texts(root / "inner")

    assert describe_texts(listed) == (
        "../.refold/context.md (1,234 bytes)",
        "AGENTS.md (cannot be read)",
        "../.refold/prompts (1 in it)",
        ".refold/skills.md (0 bytes)",
    )
    assert [text.folder for text in listed.found] == [
        str(root), str(root / "inner"), str(root), str(root / "inner"),
    ]  # fmt: skip


def test_a_long_list_of_instruction_files_is_abbreviated() -> None:
    many = tuple(FolderText("/", f"{n}.md", "") for n in range(10))

    assert FolderTexts("/", many).names.endswith("7.md and 2 more")


def test_only_instructions_outside_trusted_folders_are_reported_as_new(root: Path) -> None:
    (root / ".git").mkdir()
    (root / "AGENTS.md").touch()
    (root / "inner/AGENTS.md").touch()
    folders = TrustedFolders(root / "own/folders.toml")

    before = untrusted_texts(root / "inner", folders).names
    folders.trust_texts(root / "inner")
    half = untrusted_texts(root / "inner", folders).names
    folders.trust_texts(root)

    assert (before, half) == ("../AGENTS.md, AGENTS.md", "../AGENTS.md")
    assert untrusted_texts(root / "inner", folders).found == ()
