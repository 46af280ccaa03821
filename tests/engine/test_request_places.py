"""Where a request says that files are: folders, moves, deletions, files to be counted."""

import pytest

from refold.engine.request_places import (
    counted_in,
    deleted_in,
    destination_in,
    folder_in,
    puts_into_a_folder,
)
from refold.engine.request_words import ExpectedFile, parse_request


@pytest.mark.parametrize(
    ("request_text", "pattern"),
    [
        ("How many .log files are in this directory?", "*.log"),
        ("How many Python files are in the folder src?", "src/*.py"),
        ("Count the .txt files in the folder notes and tell me the number.", "notes/*.txt"),
        ("How many json files are there in the data folder?", "data/*.json"),
        ("How many .md files are here?", "*.md"),
        ("How many .py files did I change?", ""),
        ("How many Python files are in this folder that use os?", ""),
        ("How many files are here?", ""),
        ("Count the lines in a.txt", ""),
    ],
)
def test_files_are_counted_where_it_is_clear_which(request_text: str, pattern: str) -> None:
    assert counted_in(request_text) == pattern


@pytest.mark.parametrize(
    ("clause", "names"),
    [
        ("Delete a.txt", ("a.txt",)),
        ("delete the temporary file x.tmp and b.tmp", ("x.tmp", "b.tmp")),
        ("remove a.txt, b.txt, and c.txt", ("a.txt", "b.txt", "c.txt")),
        ("Delete old.bak, and nothing else.", ("old.bak",)),
        ("remove a.txt but keep b.txt", ("a.txt",)),
        ("Delete all files but a.txt", ()),
        ("delete everything except a.txt", ()),
        ("Remove the comments of a.py", ()),
        ("Remove unused imports in a.py", ()),
        ("delete a.txt if b.txt is there", ()),
    ],
)
def test_only_files_right_behind_the_verb_are_deleted(
    clause: str, names: tuple[str, ...]
) -> None:
    assert deleted_in(clause) == names


@pytest.mark.parametrize(
    ("clause", "folder"),
    [
        ("Move a.txt to the folder b", "b"),
        ("Move a.txt into docs", "docs"),
        ("Move a.txt from the folder x to the folder y", "y"),
        ("Move a.txt to archive/", "archive"),
        ("Put a.txt into the archive folder", "archive"),
        ("Move in/a.txt here, out of the folder in", "."),
        ("Move a.txt out of the folder in", ""),
        ("Move a.txt into it", "named before"),
    ],
)
def test_files_are_moved_to_the_folder_of_the_clause(clause: str, folder: str) -> None:
    assert destination_in(clause, "named before") == folder


def test_the_first_folder_that_has_a_name_is_that_of_the_request() -> None:
    assert folder_in("Make a folder with a file in it, in the directory named b.") == "b"
    assert folder_in("Copy it to the old folder") == "old"
    assert folder_in("Copy it to this folder") == ""


def test_a_file_is_put_into_a_folder_and_a_text_into_a_file() -> None:
    assert puts_into_a_folder("put a.txt into the folder b")
    assert not puts_into_a_folder("put the line into a.txt")


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        (
            "Put a.txt into the archive folder.",
            [ExpectedFile(paths=("archive/a.txt",), source="a.txt"), ExpectedFile(paths=("a.txt",), gone=True)],
        ),
        (
            "Move in/a.txt here, out of the folder in.",
            [ExpectedFile(paths=("a.txt",), source="in/a.txt"), ExpectedFile(paths=("in/a.txt",), gone=True)],
        ),
        ("Move in/a.txt into the folder in.", []),  # it is there
        ("Move all .csv files into a folder called tables.", [ExpectedFile(paths=("*.csv",), gone=True)]),
        ("How many .md files are here?", [ExpectedFile(paths=("*.md",), counted=True)]),
        (
            "a.txt should be called b.txt",
            [ExpectedFile(paths=("b.txt",), source="a.txt"), ExpectedFile(paths=("a.txt",), gone=True)],
        ),
    ],
)  # fmt: skip
def test_what_must_hold_of_files_that_move_is_expected(
    request_text: str, expected: list[ExpectedFile]
) -> None:
    assert list(parse_request(request_text).expected) == expected
