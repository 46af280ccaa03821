"""What git's settings name in a workspace is guarded as `.git/hooks` is. Git itself is the oracle."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.place.git_targets import GitTargets, Setting, parse_settings
from refold.place.guard_state import AllowedPaths
from refold.place.guarded_paths import Guards
from tests.place.test_guarded_changes import git
from tests.place.walled import Walled, needs_bubblewrap, walled

HOOK = "#!/bin/sh\ntouch ran\n"


def list_settings(config: Path) -> list[tuple[str, str, str | None]]:
    """Return each setting as git reads it: the file, the key and the value. Nothing of the
    user counts.
    """
    command = [
        "git",
        "config",
        "--file",
        str(config),
        "--includes",
        "--show-origin",
        "--list",
        "-z",
    ]
    done = subprocess.run(
        command, cwd=config.parent, capture_output=True, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(config.parent), "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    words = done.stdout.decode(errors="surrogateescape").split("\0")
    rows = zip(words[0::2], words[1::2], strict=False) if done.returncode == 0 else ()
    return [
        (file.removeprefix("file:"), key, value if newline else None)
        for file, row in rows
        for key, newline, value in [row.partition("\n")]
    ]


def read(config: Path) -> list[tuple[str, str, str | None]]:
    targets = GitTargets([str(config.parent)], str(config.parent), ())
    return [(f, s.key, s.value) for f, s in targets.settings(str(config))]


def normalize_spaces(row: tuple[str, str, str | None]) -> tuple[str, str, str]:
    """Before git 2.45, all white space in a value was read as spaces."""
    file, key, value = row
    return (
        file,
        key,
        "-" if value is None else "=" + "".join(" " if c.isspace() else c for c in value),
    )


VALUES = st.text(
    alphabet=st.sampled_from("ab/.~$! \t\"\\#;'=-n\r"), max_size=14
) | st.sampled_from(
    ["inc", "~/inc", "sub/inc", '"inc"', "in\\\nc", "./inc ; x", ".husky/_"]
)
HEADERS = st.sampled_from(
    ["[core]", "[CORE]", "[include]", '[includeIf "gitdir:/**"]', '[filter "a\\"b"]', "[alias]",
     "[a.B]", '[a.b "C"]', "[ core]", '[x "y" ]', "[include] path=inc", "[core]hooksPath=h"]
)  # fmt: skip
NAMES = st.sampled_from(["path", "hooksPath", "clean", "st", "attributesFile", "x-1", "1x"])
LINES = st.one_of(
    HEADERS,
    st.tuples(NAMES, st.sampled_from([" = ", "=", " =\t", " "]), VALUES).map("".join),
    NAMES,
    st.sampled_from(["# a [core]", "; x", "", "  \t", "\ufeff"]),
)
FILES = st.lists(LINES, max_size=8).map("\n".join)


@pytest.mark.slow
@given(first=FILES, second=FILES)
def test_every_setting_that_git_lists_is_read(
    tmp_path_factory: pytest.TempPathFactory, first: str, second: str
) -> None:
    folder = tmp_path_factory.mktemp("git")
    (folder / "config").write_text(first, newline="")
    (folder / "inc").write_text(second, newline="")

    theirs, ours = list_settings(folder / "config"), read(folder / "config")

    assert [
        row
        for row in map(normalize_spaces, theirs)
        if row not in map(normalize_spaces, ours)
    ] == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[a]\nx = b # c", "b"),
        ("[a]\nx = b\\\n c", "b c"),
        ('[a]\nx = "b # c" d', "b # c d"),
        ("[a]\nx = b \t", "b"),
        ("[a] x =  y  z ", "y  z"),
        ("\ufeff[a]\r\nx = y\r\n", "y"),
        ("[a]\nx", None),
    ],
)
def test_a_setting_value_is_parsed_as_git_parses_it(text: str, value: str | None) -> None:
    assert list(parse_settings(text)) == [Setting("a", "", "x", value)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Walled]:
    """Yield a repository whose settings name files in it."""
    needs_bubblewrap()
    with walled(tmp_path / "ws", states=str(tmp_path / "states")) as result:
        root = result.root
        git(root, "init", "-q", "-b", "main")
        for name in (
            ".husky/_/h",
            ".husky/_/pre-commit",
            ".husky/pre-commit",
            "tools/clean.sh",
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(HOOK)
            (root / name).chmod(0o755)
        (root / "team").mkdir()
        (root / "team/gitconfig").write_text("[alias]\n\tcheck = !sh tools/check.sh\n")
        (root / "tools/check.sh").write_text("true\n")
        (root / "attributes").write_text("*.c diff=cpp\n")
        git(root, "config", "core.hooksPath", ".husky/_")
        git(root, "config", "core.attributesFile", "attributes")
        git(root, "config", "filter.x.clean", "./tools/clean.sh %f")
        git(root, "config", "include.path", "../team/gitconfig")
        git(
            root,
            "config",
            "alias.top",
            '!sh "$(git rev-parse --show-toplevel)"/tools/top.sh',
        )
        yield result


def test_all_paths_that_git_settings_name_are_guarded(place: Walled) -> None:
    root = str(place.root)
    paths = Guards([root]).paths()

    assert sorted(os.path.relpath(path, root) for path in paths.targets) == [
        ".husky/_", ".husky/pre-commit", "attributes", "team/gitconfig", "tools/check.sh",
        "tools/clean.sh",
    ]  # fmt: skip
    assert paths.targets.keys() <= paths.paths


NAMED = (
    ".husky/_/pre-commit", ".husky/_/pre-push", ".husky/pre-commit", ".husky/pre-push",
    "attributes", "team/gitconfig", "tools/check.sh", "tools/clean.sh", "tools/top.sh",
)  # fmt: skip


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("name", NAMED)
def test_a_command_cannot_change_a_path_that_a_git_setting_names(
    place: Walled, name: str
) -> None:
    path = place.root / name
    before = content_of(path)
    write = f"printf '[alias]\n\\tx = !touch ran\n' > {name}"

    # Without the right to write the file, a command may still try to move it away.
    place.run(f"{write}; mv {name} {name}.x; {write}")

    assert content_of(path) == before


@pytest.mark.parametrize("name", NAMED)
def test_an_unprevented_change_of_a_path_that_a_git_setting_names_is_undone(
    place: Walled, name: str
) -> None:
    path = place.root / name
    before = content_of(path)
    watch, allowed = place.sandbox.watch, AllowedPaths()

    watch.begin(allowed)
    path.write_text("[alias]\n\tx = !touch ran\n")
    watch.end(allowed)

    assert content_of(path) == before


@pytest.mark.parametrize("name", NAMED)
def test_an_approved_change_of_a_path_that_a_git_setting_names_is_accepted(
    place: Walled, name: str
) -> None:
    path = place.root / name
    watch, allowed = place.sandbox.watch, AllowedPaths(named=(str(path),))
    watch.begin(allowed)
    path.write_text("[user]\n")

    report = watch.end(allowed)

    assert (report.undone, report.accepted) == ((), (str(path),))
    assert path.read_text() == "[user]\n"


def test_a_replaced_link_on_the_path_of_a_git_setting_is_restored(place: Walled) -> None:
    (place.root / "t").symlink_to("tools")
    git(place.root, "config", "filter.y.clean", "t/clean.sh")
    watch, allowed = place.sandbox.watch, AllowedPaths()
    watch.begin(allowed)
    (place.root / "evil").mkdir()
    (place.root / "evil/clean.sh").write_text("evil")
    (place.root / "t").unlink()
    (place.root / "t").symlink_to("evil")

    watch.end(allowed)

    assert (place.root / "t/clean.sh").read_text() == HOOK


def test_paths_that_git_settings_of_the_user_name_are_guarded(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    config = tmp_path / "home/.gitconfig"
    config.write_text("[core]\n\thooksPath = .githooks\n[include]\n\tpath = ~/more\n")
    (tmp_path / "home/more").write_text("[core]\n\tpager = ./page.sh\n")
    root = tmp_path / "ws"
    (root / ".githooks").mkdir(parents=True)
    (root / "page.sh").touch()
    git(root, "init", "-q")

    paths = Guards([str(root)], str(tmp_path / "home"), [str(config)]).paths()

    assert sorted(paths.targets) == [str(root / ".githooks"), str(root / "page.sh")]


def test_hooks_of_the_enclosing_repository_are_guarded(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.hooksPath", "web/.husky/_")
    (tmp_path / "web/.husky/_").mkdir(parents=True)

    paths = Guards([str(tmp_path / "web")]).paths()

    assert list(paths.targets) == [str(tmp_path / "web/.husky/_")]


def test_existing_hooks_that_a_new_git_setting_names_are_not_moved(
    place: Walled,
) -> None:
    """Only the setting is put back: the hooks existed before."""
    (place.root / "hooks").mkdir()
    (place.root / "hooks/pre-push").write_text(HOOK)
    watch, allowed = place.sandbox.watch, AllowedPaths()
    watch.begin(allowed)
    git(place.root, "config", "core.hooksPath", "hooks")

    report = watch.end(allowed)

    assert [change.path for change in report.undone] == [str(place.root / ".git/config")]
    assert (place.root / "hooks/pre-push").read_text() == HOOK
    assert git(place.root, "config", "core.hooksPath") == ".husky/_\n"


def test_git_worktree_add_succeeds_and_keeps_the_hooks(place: Walled) -> None:
    git(place.root, "add", ".")
    git(place.root, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "one")

    done = place.run("git worktree add -q wt")

    assert (done.code, done.guarded.undone) == (0, ()), done.text
    assert (place.root / "wt/.husky/_/pre-commit").read_text() == HOOK


def test_path_named_by_git_returns_each_path_that_a_git_setting_names(
    place: Walled,
) -> None:
    watch, root = place.sandbox.watch, place.root

    matching_NAMED = [name for name in NAMED if watch.path_named_by_git([str(root / name)])]

    assert matching_NAMED == list(NAMED)
    assert (
        watch.path_named_by_git([str(root / "tools/other.sh"), str(root / "src/a.c")]) == ""
    )
