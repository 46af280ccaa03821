"""Ignore files leave out what git leaves out, and no file makes the walk slow."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.place.file_walk import directory_ignores, walk
from refold.place.gitignore import read_lines
from tests.values.test_path_globs import HOSTILE

NAMES = (
    "a", "a.py", "b.log", "x/a", "x/a.py", "x/y/a.log", "x/y/z/keep.log", "sub/x/b", "#c",
    "!d", "e ", "[f]", "f", "g\\h", "x1", "x2", "xa", "deep/er/x1", "é", "a*b", "aab",
)  # fmt: skip
FILES = [
    "*.log\n!keep.log\n",
    "/a\nx/\n",
    "x/*\n!x/y\n",
    "x/**\n",
    "**/a\n",
    "x/**/a*\n",
    "\\#c\n\\!d\n",
    "e \n",
    "e\\ \n",
    "[f]\nx[!2a]\n",
    "\\[f\\]\n",
    "x[[:digit:]]\n",
    "sub/x\n",
    "deep/\n!deep/er/x1\n",
    "a\\*b\n",
    "a**b\n",
    "*\n!*/\n!*.py\n",
    "# nothing\n\n   \n/\n",
    "[\na[\n",
    "\ufeffa\r\nb.log\r\n",
    "é\n",
    "g\\\\h\n",
    "**\n",
    "*/a\n",
]


def write_files(directory: Path, ignore: str) -> None:
    for name in NAMES:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (directory / ".gitignore").write_bytes(ignore.encode())
    subprocess.run(["git", "init", "-q", directory], check=True, timeout=60)


@pytest.mark.slow  # git is a program
@pytest.mark.parametrize("ignore", FILES)
def test_the_walk_lists_the_same_files_as_git(ignore: str, tmp_path: Path) -> None:
    write_files(tmp_path, ignore)
    command = ["git", "-C", str(tmp_path), "-c", "core.excludesFile=/dev/null", "ls-files",
               "-z", "--others", "--exclude-standard"]  # fmt: skip

    output = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout

    walked = {
        str(Path(path).relative_to(tmp_path)) for path in walk(str(tmp_path), lambda: None)
    }
    assert walked == {name for name in output.decode().split("\0") if name}


@pytest.mark.parametrize("pattern", [*HOSTILE, "[" * 2000, "x" * 100_000, "!" + HOSTILE[0]])
def test_matching_hostile_patterns_of_an_ignore_file_ends(pattern: str) -> None:
    """A matcher that tried every split of the name would run into the time limit of tests."""
    lines = read_lines("\n".join([pattern] * 20))

    assert not lines.is_ignored("a" * 200 + ".txt", directory=False)


PATTERNS = st.lists(
    st.text("ab.*?/!\\[] ", max_size=6)
    | st.sampled_from(
        ["*.a", "!*.a", "*.b.a", "a", "!a", "/a", "a/", "a/b", "\\a", ".*", "*.?"]
    ),
    max_size=12,
)
PATHS = st.lists(st.sampled_from(["a", "b", ".a", "a.a", "b.b.a", "a.", "ab"]), min_size=1)


@given(PATTERNS, PATHS, st.booleans())
def test_looking_up_ignore_lines_equals_matching_all_of_them(
    patterns: list[str], parts: list[str], directory: bool
) -> None:
    lines, path = read_lines("\n".join(patterns)), "/".join(parts)

    matching = [
        line.ignores
        for line in lines.lines
        if (directory or not line.directories) and line.matches(path, parts[-1])
    ]
    assert lines.is_ignored(path, directory=directory) == next(iter(matching), None)


def test_files_in_an_ignored_directory_are_ignored_and_can_be_listed(
    tmp_path: Path,
) -> None:
    write_files(tmp_path, "x/\n")

    inside = directory_ignores(str(tmp_path / "x" / "y"))

    assert inside.ignored
    assert [Path(p).name for p in walk(str(tmp_path / "x" / "y" / "z"), lambda: None)] == [
        "keep.log"
    ]
