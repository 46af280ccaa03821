"""Finding and searching files: the same with and without ripgrep."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.client.workspace import file_names
from refold.errors import ToolFailed
from refold.place.commands import ShellCommands
from refold.place.file_walk import walk
from refold.place.files import DiskFiles
from refold.place.port import Finished, Real
from refold.testing.places import (
    ScriptedCommands,
    ToolDirectory,
    WithoutPrograms,
    temporary_place,
)
from refold.tools.find import glob, list_files, matcher
from refold.tools.grep import grep

TREE = {
    ".gitignore": "*.log\nbuild/\n!keep.log\n",
    ".hidden": "needle\n",
    "a.py": "import os\n\ndef needle():\n    return 1\n",
    "b.txt": "no\nNeedle\r\nhay\r\n",
    "x.log": "needle\n",
    "keep.log": "needle\n",
    "build/out.py": "needle\n",
    "src/.gitignore": "secret.py\n/only.py\n",
    "src/.ignore": "ignored.py\n!kept.log\n",
    "src/deep/c.py": "# needle and needle\n",
    "src/deep/only.py": "needle\n",
    "src/ignored.py": "needle\n",
    "src/kept.log": "needle\n",
    "src/only.py": "needle\n",
    "src/secret.py": "needle\n",
    "src/d.ts": "let hay\n",
    "new\nline.py": "needle\n",
    ".git/config": "needle\n",
    "src/f.log": "needle\n",
    "src/deep/.ignore": "*.md\n!*.txt\n",
    "src/deep/a.md": "needle\n",
    "other/.git/HEAD": "needle\n",
    "other/own.log": "own needle\n",
}


@pytest.fixture(
    params=[pytest.param("rg", marks=pytest.mark.peer), "walk"], ids=["ripgrep", "walk"]
)
def place(request: pytest.FixtureRequest) -> Iterator[ToolDirectory]:
    if request.param == "rg" and not ShellCommands().has("rg"):
        pytest.skip("ripgrep is not installed")
    plain = ShellCommands()
    with temporary_place(
        plain if request.param == "rg" else WithoutPrograms(plain, "rg")
    ) as result:
        write_tree(result.directory)
        yield result


def write_tree(directory: Path) -> None:
    for age, (name, text) in enumerate(TREE.items()):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        os.utime(path, (10_000 + age, 10_000 + age))
    (directory / "binary").write_bytes(b"needle\n\0\1")
    (directory / "latin").write_bytes(b"needle \xfc\n")
    (directory / os.fsdecode(b"b\xffd")).write_bytes(b"needle\n")
    (directory / "link.py").symlink_to("a.py")
    (directory / "loop").symlink_to(".")
    os.mkfifo(directory / "pipe")


def search(place: ToolDirectory, **arguments: object) -> list[str]:
    return anyio.run(place.use, grep, {"pattern": "needle"} | arguments).text.split("\n")


def find_files(place: ToolDirectory, pattern: str) -> list[str]:
    return anyio.run(place.use, glob, {"pattern": pattern}).text.split("\n")


def test_grep_groups_lines_by_file_and_omits_ignored_files(place: ToolDirectory) -> None:
    assert search(place) == [
        ".hidden", "1: needle",
        "a.py", "3: def needle():",
        r"b\xffd", "1: needle",
        "keep.log", "1: needle",
        "latin", "1: needle ü",
        r"new\nline.py", "1: needle",
        "other/own.log", "1: own needle",
        "src/deep/c.py", "1: # needle and needle",
        "src/deep/only.py", "1: needle",
        "src/kept.log", "1: needle",
        "(10 lines in 10 files)",
        "Not shown: binary (a binary file that matches).",
    ]  # fmt: skip


def test_ignore_files_apply_outside_of_a_repository_too(place: ToolDirectory) -> None:
    for clone in (".git", "other"):
        shutil.rmtree(place.directory / clone)

    assert search(place, glob="*.log", files_only=True)[:-1] == ["keep.log", "src/kept.log"]


@pytest.fixture
def excludes(place: ToolDirectory, home: Path) -> ToolDirectory:
    """Return the user's exclude file, named in a settings file, and that of the clone."""
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n")
    (home / "mine").write_text("*.md\n/src/only.py\n/a.py\nb.txt\n!kept.txt\n")
    (place.directory / ".git/info").mkdir()
    (place.directory / ".git/info/exclude").write_text("/.hidden\nc.py\n!b.txt\n")
    (place.directory / "a.md").write_text("needle\n")
    (place.directory / "src/.gitignore").write_text("!only.py\n")
    return place


def test_git_excludes_of_the_user_and_of_the_clone_apply(excludes: ToolDirectory) -> None:
    files = search(excludes, files_only=True, ignore_case=True)
    assert [name for name in files if not name.startswith("(")] == [
        "b.txt", r"b\xffd", "keep.log", "latin", r"new\nline.py", "other/own.log",
        "src/deep/only.py", "src/kept.log", "src/only.py", "src/secret.py",
        "Not shown: binary (a binary file that matches).",
    ]  # fmt: skip
    names = anyio.run(excludes.use, glob, {"pattern": "*.{md,py}"}).text.split("\n")
    assert sorted(names) == [
        r"new\nline.py", "src/deep/only.py", "src/only.py", "src/secret.py"
    ]  # fmt: skip


def test_excludes_anchored_at_the_top_apply_in_subdirectories(
    excludes: ToolDirectory,
) -> None:
    (excludes.directory / "src/.gitignore").unlink()

    assert search(excludes, path="src", files_only=True)[:-1] == [
        "src/deep/only.py", "src/kept.log", "src/secret.py",
    ]  # fmt: skip


def test_completion_lists_no_file_that_the_user_excludes(
    excludes: ToolDirectory,
) -> None:
    names = set(file_names(str(excludes.directory)))

    assert {"a.md", "a.py", ".hidden", "src/deep/c.py"} & names == set()
    assert {"b.txt", "src/only.py"} <= names


def test_list_files_marks_files_that_the_user_excludes(excludes: ToolDirectory) -> None:
    rows = anyio.run(excludes.use, list_files, {}).text.split("\n")

    marked = {row.split("\t")[0] for row in rows if row.endswith("\tignored")}
    assert marked == {".git/", "build/", ".hidden", "a.md", "a.py", "x.log"}


def test_search_says_that_all_files_are_ignored(place: ToolDirectory) -> None:
    (place.directory / ".gitignore").write_text("/*\n")

    assert search(place) == [
        "Nothing was found: all files there are ignored. To search in one, give it as the "
        "path; list_files shows them."
    ]
    assert anyio.run(place.use, glob, {"pattern": "a.py"}).text == (
        "No file below . matches a.py, except 1 file that is ignored: list_files and "
        "read_file show ignored files."
    )
    assert search(place, pattern="no such words", path="a.py") == ["Nothing was found."]


def test_grep_shows_context_lines_and_marks_gaps(place: ToolDirectory) -> None:
    (place.directory / "src" / "e.ts").write_text("0\nneedle\n2\n3\n4\n5\nneedle\nneedle\n")

    assert search(place, path="src", glob="*.ts", context=1) == [
        "src/e.ts", "1- 0", "2: needle", "3- 2", "--", "6- 5", "7: needle", "8: needle",
        "(3 lines in 1 file)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        ({"glob": "*.py"}, ["a.py", r"new\nline.py", "src/deep/c.py", "src/deep/only.py"]),
        ({"glob": "src/**/*.py"}, ["src/deep/c.py", "src/deep/only.py"]),
        ({"glob": "{a,b}.*", "ignore_case": True}, ["a.py", "b.txt"]),
        ({"pattern": r"^needle$", "glob": "*.py"}, [r"new\nline.py", "src/deep/only.py"]),
        ({"pattern": r"\bNeedle$"}, ["b.txt"]),
        ({"pattern": r"let\s+h[aeiou]y"}, ["src/d.ts"]),
        ({"path": "src/deep/c.py"}, ["src/deep/c.py"]),
        ({"path": "x.log"}, ["x.log"]),
        ({"path": "other"}, ["other/own.log"]),
        ({"path": "src"}, ["src/deep/c.py", "src/deep/only.py", "src/kept.log"]),
    ],
)
def test_grep_with_files_only_names_only_the_files(
    place: ToolDirectory, arguments: dict[str, object], files: list[str]
) -> None:
    assert search(place, files_only=True, **arguments)[:-1] == files


@pytest.mark.slow  # much is searched
@pytest.mark.parametrize("size", [1_000_000, 19_000_000])
def test_a_match_in_a_line_that_is_too_long_to_show_is_still_reported(
    place: ToolDirectory, size: int
) -> None:
    (place.directory / "long.json").write_text("x" * size + " needle\n")
    (place.directory / "short.txt").write_text("x\n")

    for pattern in ("x", "needle"):
        text = "\n".join(search(place, pattern=pattern, glob="{long,short}.*"))

        assert "long.json" in text
        assert "Nothing was found" not in text
    assert "long.json" in "\n".join(search(place, path="long.json", pattern="x+"))


def test_a_binary_file_that_matches_is_named_without_its_lines(
    place: ToolDirectory,
) -> None:
    assert search(place, path="binary") == [
        "No line can be shown.",
        "Not shown: binary (a binary file that matches).",
    ]
    assert search(place, path="binary", pattern="nowhere") == ["Nothing was found."]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file (optional)")
def test_a_file_that_cannot_be_read_is_reported(place: ToolDirectory) -> None:
    (place.directory / "a.py").chmod(0)

    assert "a.py" in search(place, pattern="nowhere")[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every directory (optional)")
def test_a_directory_that_cannot_be_listed_is_reported(place: ToolDirectory) -> None:
    (place.directory / "src/deep").chmod(0)
    try:
        result = find_files(place, "*.ts"), find_files(place, "*.none")
        searched = search(place, pattern="nowhere")
        with pytest.raises(ToolFailed, match=r"src/deep"):
            anyio.run(place.use, list_files, {"path": "src/deep"})
    finally:
        (place.directory / "src/deep").chmod(0o755)

    text = "Not shown: src/deep (permission denied)."
    assert result[0] == ["src/d.ts", text]
    assert result[1] == ["No file below . matches *.none.", text]
    assert searched == ["No line can be shown.", text]


def test_a_directory_that_cannot_be_opened_is_reported_without_ripgrep_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with temporary_place(WithoutPrograms(ShellCommands(), "rg")) as place:
        write_tree(place.directory)
        real_scandir, locked = os.scandir, (place.directory / "src/deep").stat().st_ino

        def scandir(number: int) -> object:
            if os.fstat(number).st_ino == locked:
                raise PermissionError(13, "Permission denied")
            return real_scandir(number)

        monkeypatch.setattr("os.scandir", scandir)

        assert find_files(place, "*.ts") == [
            "src/d.ts",
            "Not shown: src/deep (permission denied).",
        ]


def test_a_pattern_that_looks_like_an_option_is_searched_for(place: ToolDirectory) -> None:
    assert search(place, pattern="--files") == ["Nothing was found."]


def test_a_pattern_with_shell_quotes_runs_no_command(place: ToolDirectory) -> None:
    assert search(place, pattern="'; touch owned; echo '") == ["Nothing was found."]
    assert not (place.directory / "owned").exists()


def test_an_invalid_pattern_is_refused_with_the_reason(place: ToolDirectory) -> None:
    with pytest.raises(ToolFailed, match=r'^The pattern "\(" is invalid: .*\.$'):
        search(place, pattern="(")


@pytest.mark.parametrize("path", ["nothing", "pipe"])
def test_a_path_that_cannot_be_searched_is_refused(place: ToolDirectory, path: str) -> None:
    with pytest.raises(ToolFailed, match=path):
        search(place, path=path)


def test_grep_shows_at_most_300_lines_and_counts_all(place: ToolDirectory) -> None:
    (place.directory / "many").write_text("needle\n" * 1000)

    match = search(place, path="many")

    assert len(match) == 301
    assert (
        match[-1]
        == "(1,000 lines in 1 file; only the first 300 are shown: narrow the search)"
    )


def test_grep_truncates_a_very_long_line(place: ToolDirectory) -> None:
    (place.directory / "long").write_text("needle" + "x" * 100_000)

    assert search(place, path="long")[1] == f"1: needle{'x' * 394} [99,606 more characters]"


def test_glob_lists_the_newest_files_first_and_omits_ignored_files(
    place: ToolDirectory,
) -> None:
    reply = anyio.run(place.use, glob, {"pattern": "*.py"})

    assert reply.text.split("\n") == [
        r"new\nline.py", "src/deep/only.py", "src/deep/c.py", "a.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "*.ts", "path": "src"}, "src/d.ts"),
        ({"pattern": "deep/*.py", "path": "src"}, "src/deep/only.py\nsrc/deep/c.py"),
        ({"pattern": "**/c.py"}, "src/deep/c.py"),
        ({"pattern": "*.rs"}, "No file below . matches *.rs."),
        ({"pattern": ".git/*"}, "No file below . matches .git/*."),
    ],
)
def test_glob_finds_files_by_pattern(
    place: ToolDirectory, arguments: dict[str, object], text: str
) -> None:
    assert anyio.run(place.use, glob, arguments).text == text


def test_glob_shows_at_most_200_names_and_counts_all(place: ToolDirectory) -> None:
    for number in range(205):
        (place.directory / f"{number}.rs").touch()

    parts = anyio.run(place.use, glob, {"pattern": "*.rs"}).text.split("\n")

    assert len(parts) == 201
    assert parts[-1] == "(the 200 newest of 205; narrow the pattern)"


@pytest.mark.parametrize(
    ("path", "message"), [("a.py", "is not a directory"), ("x", "no directory x")]
)
def test_glob_and_list_files_refuse_paths_that_are_not_directories(
    place: ToolDirectory, path: str, message: str
) -> None:
    for tool, arguments in ((glob, {"pattern": "*"}), (list_files, dict[str, str]())):
        with pytest.raises(ToolFailed, match=message):
            anyio.run(place.use, tool, {**arguments, "path": path})


def test_list_files_shows_sizes_and_marks_ignored_names(place: ToolDirectory) -> None:
    parts = anyio.run(place.use, list_files, {}).text.split("\n")

    assert parts == [
        ".git/\tignored", "build/\tignored", "other/", "src/",
        ".gitignore\t23 B", ".hidden\t7 B", "a.py\t38 B", "b.txt\t16 B",
        "binary\t9 B", "b\\xffd\t7 B", "keep.log\t7 B", "latin\t9 B", "link.py\tlink", "loop\tlink",
        "new\\nline.py\t7 B", "pipe\tdevice or pipe", "x.log\t7 B\tignored",
    ]  # fmt: skip


def test_a_search_with_a_catastrophic_pattern_can_be_cancelled() -> None:
    """Without the cancellation, the match takes years."""
    with temporary_place(WithoutPrograms(ShellCommands(), "rg")) as place:
        (place.directory / "a").write_text("a" * 60 + "!")

        async def main() -> bool:
            with anyio.move_on_after(0.1) as scope:
                await place.use(grep, {"pattern": "(a+)+$"})
            return scope.cancelled_caught

        assert anyio.run(main)


def test_grep_says_that_a_workspace_elsewhere_has_no_ripgrep() -> None:
    """Our own search program is on this machine only."""
    commands = WithoutPrograms(ShellCommands(), "rg", sys.executable)
    with (
        temporary_place(commands) as place,
        pytest.raises(ToolFailed, match=r"no ripgrep \(rg\) where the workspace is"),
    ):
        search(place)


def test_a_search_that_takes_too_long_fails_with_the_reason() -> None:
    class Slow(ScriptedCommands):
        async def run(self, *_: object, **__: object) -> Finished:
            return Finished(None, b"", timed_out=True)

    with (
        temporary_place(Slow({}, ("rg",))) as place,
        pytest.raises(ToolFailed, match="took longer than 60 s"),
    ):
        search(place)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", "x/a.py"], ["a.pyc", "py"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "a.py"]),
        ("./src/**", ["src/a", "src/x/a"], ["a"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["ba"]),
        ("a?[!b-d].{c,h{,pp}}", ["axa.c", "axa.h", "axa.hpp"], ["axb.c", "a/a.c", "axa.d"]),
        ("a,b}", ["a,b}"], ["a"]),
        (r"app/\[id\]/*", ["app/[id]/x"], ["app/i/x"]),
        (r"\*", ["*"], ["x"]),
        ("(a|b)+", ["(a|b)+"], ["a"]),
    ],
)
def test_file_patterns_match_only_the_expected_paths(
    pattern: str, yes: list[str], no: list[str]
) -> None:
    matches = matcher(pattern)

    assert [p for p in yes + no if matches(p)] == yes


@pytest.mark.parametrize("pattern", ["{a", "[z-a]", "[", "a" * 5000])
def test_an_invalid_file_pattern_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(ToolFailed, match=r"is invalid|characters long"):
        matcher(pattern)


@pytest.fixture
def hidden(place: ToolDirectory) -> ToolDirectory:
    """Rules forbid reading `.hidden`, and all below `src/deep`."""

    def unread(real: Real) -> str:
        denied = real.endswith("/.hidden") or "/src/deep/" in real
        return "a rule forbids it" if denied else ""

    place.files = DiskFiles(place.directory, why_unreadable=unread)
    return place


def test_grep_omits_lines_of_files_that_may_not_be_read(hidden: ToolDirectory) -> None:
    match = search(hidden, context=2)

    assert not [line for line in match if ".hidden" in line or "deep" in line]
    assert match[-2] == "(7 lines in 7 files)"
    assert search(hidden, pattern="needle and needle") == ["Nothing was found."]


@pytest.mark.parametrize("path", [".hidden", "src/deep/c.py", "link-to-it"])
def test_grep_refuses_a_path_that_may_not_be_read(hidden: ToolDirectory, path: str) -> None:
    (hidden.directory / "link-to-it").symlink_to(".hidden")

    with pytest.raises(ToolFailed, match="may not be searched: a rule forbids it"):
        search(hidden, path=path)
    assert search(hidden, path="src/deep") == ["Nothing was found."]


def test_glob_and_list_files_omit_names_that_may_not_be_read(hidden: ToolDirectory) -> None:
    by_name = anyio.run(hidden.use, glob, {"pattern": "**"}).text
    text = anyio.run(hidden.use, list_files, {}).text
    deep = anyio.run(hidden.use, list_files, {"path": "src/deep"}).text

    assert not any(word in by_name for word in (".hidden", "deep"))
    assert ".hidden" not in text
    assert deep == "src/deep is empty."


def test_a_search_does_not_follow_links_out_of_the_workspace(place: ToolDirectory) -> None:
    outside = place.directory.parent / f"{place.directory.name}-out"
    outside.mkdir()
    try:
        (outside / "secret").write_text("needle of somebody else\n")
        (place.directory / "away").symlink_to(outside)

        assert not [line for line in search(place) if "somebody" in line]
    finally:
        shutil.rmtree(outside)


def test_ignore_files_that_are_directories_or_pipes_are_skipped(
    place: ToolDirectory,
) -> None:
    (place.directory / "src/deep/.gitignore").mkdir()
    (place.directory / "other/.gitignore").unlink(missing_ok=True)
    os.mkfifo(place.directory / "other/.gitignore")

    for path in ("src/deep", "other"):
        assert anyio.run(place.use, list_files, {"path": path}).text
    if not place.commands.has("rg"):  # which waits for the pipe itself
        assert search(place, path="other", files_only=True)[:-1] == ["other/own.log"]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ay", "a" * 250),
        ("**/a*/**/a*/**/a*/**/a*/**/y", "/".join(["a" * 20] * 100)),
        ("{a,*a}" * 7 + "y", "a" * 200),
        ("[!b]*" * 30 + "y", "a" * 250),
    ],
)
def test_matching_a_hostile_file_pattern_ends(pattern: str, path: str) -> None:
    assert matcher(pattern)(path) is False


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("**/a/**/b/**", ["a/b/c", "x/a/y/b/c/d"], ["a/b", "a/c", "b/a/b"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py", "src/a.pyc"]),
        ("*a*ab", ["aab", "xaxxab", "aaab"], ["ab", "aabx"]),
        ("x{a,b{c,d}}y", ["xay", "xbcy", "xbdy"], ["xy", "xby"]),
        ("a[!b]c/d", ["axc/d"], ["a/c/d", "abc/d"]),
    ],
)
def test_combined_wildcards_and_braces_match_only_the_expected_paths(
    pattern: str, yes: list[str], no: list[str]
) -> None:
    matches = matcher(pattern)

    assert ([p for p in yes if not matches(p)], [p for p in no if matches(p)]) == ([], [])


def test_braces_that_expand_to_too_many_patterns_are_refused() -> None:
    with pytest.raises(ToolFailed, match="stands for more than 256 patterns"):
        matcher("{a,b}" * 12)


@pytest.mark.parametrize("line", ["*a" * 16 + "y", "**/a*/" * 12 + "y"])
def test_matching_a_hostile_line_of_an_ignore_file_ends(tmp_path: Path, line: str) -> None:
    names = [tmp_path / ("a" * 60), tmp_path.joinpath(*["a" * 8] * 20, "b")]
    for name in names:
        name.parent.mkdir(parents=True, exist_ok=True)
        name.touch()
    (tmp_path / ".gitignore").write_text(f"{line}\nignored\n")
    (tmp_path / "ignored").touch()

    texts = set(walk(str(tmp_path), lambda: None))

    assert texts == {*map(str, names), str(tmp_path / ".gitignore")}
