"""Evasions of guarded paths that attackers found: each must fail."""

import os
import subprocess
from pathlib import Path

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place.commands import ShellCommands
from refold.place.gitconfig import runs_no_program, without_programs
from refold.values.tools import Confinement
from tests.place.walled import Walled, needs_bubblewrap, walled

WRITING = Confinement(writes=True)
RUNS = '[filter "f"]\n\tclean = "echo RAN >&2; cat"\n'
REPOSITORY = "s/u/b"


def run_git(folder: Path, *text: str) -> None:
    subprocess.run(["git", *text], cwd=folder, check=True, capture_output=True)


def make_filtered_repository(root: Path) -> None:
    """A repository with a changed file that goes through a filter."""
    run_git(root, "init", "-q")
    (root / "a").write_text("before")
    run_git(root, "add", "a")
    (root / "a").write_text("after")
    (root / ".gitattributes").write_text("* filter=f\n")


@pytest.mark.parametrize(
    "line",
    [
        '[remote "x]\f# "] {}',  # git: a name with all that in it, then another section
        '[remote "x]\r# "] {}',
        '[remote "x]\u2028# "] {}',
        '[remote "x]\x85# "] {}',
        "[core] {}",
        "[core]{}",
        "[user]\n\tname = x \\\n[user]\n\temail = y \\\n# z\n{}",
        "\ufeff{}",
    ],
)
def test_a_git_setting_in_unusual_syntax_starts_no_program_in_read_only_git(
    ws: Walled, line: str
) -> None:
    make_filtered_repository(ws.root)
    config = ws.root / ".git/config"
    hidden = line.format(RUNS.replace("\n\t", " ") if "{}" in line[-3:] else RUNS)
    config.write_bytes(config.read_bytes() + hidden.encode())

    result = ws.run("git diff; git status", writes=False)

    assert "RAN" not in result.text
    assert "after" in result.text
    assert not runs_no_program(str(config))


@pytest.mark.parametrize(
    "text",
    [
        '[remote "o"]\n\turl = e"xt":":sh -c x',
        '[remote "o"]\n\turl = "ext::sh -c x"',
        '[submodule "s"]\n\tupdate = !x',
        "[pull]\n\ttwohead = ../../x",
        '[branch "b"]\n\tmergeoptions = -s ../../x',
        '[core "x]\n',
        "[core\n\tbare = true",
        "[core]\n\tbare\f = true",
        '[diff "x"]\n\tcommand = x',
    ],
)
def test_a_git_setting_that_runs_a_program_is_recognized_in_any_spelling(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "config").write_text(text)

    assert not runs_no_program(str(tmp_path / "config"))
    assert without_programs(str(tmp_path / "config")) is not None


@pytest.mark.parametrize("end", [" ", "\t", " \r\n", "\0", "\0x"])
def test_a_gitdir_file_is_resolved_to_the_repository_that_git_uses(
    ws: Walled, end: str
) -> None:
    """git counts blanks as part of the name, and ignores everything after a NUL byte."""
    name = "evil" + end.partition("\0")[0].rstrip("\r\n")
    make_filtered_repository(ws.root)
    (ws.root / ".git").rename(ws.root / name)
    with (ws.root / name / "config").open("a") as file:
        file.write(RUNS)
    (ws.root / ".git").write_text(f"gitdir: evil{end}", newline="")

    assert "RAN" not in ws.run("git diff; git status", writes=False).text
    ws.run(f"touch '{name}/hooks/pre-commit'; echo '[x]' >> '{name}/config'")
    assert not (ws.root / name / "hooks/pre-commit").exists()
    assert "[x]" not in (ws.root / name / "config").read_text()


@pytest.mark.parametrize("name", ["a\rb", "a\nb", "a b\\040", "ü\udcff", "\u2028", "a\tb"])
def test_guarded_files_in_unusually_named_directories_stay_unchanged(
    ws: Walled, name: str
) -> None:
    guard = ws.root / name / ".vscode/tasks.json"
    guard.parent.mkdir(parents=True)
    guard.write_text("as it was")

    result = ws.run("for f in */.vscode/tasks.json; do echo x > $f; done; echo went on")

    assert "went on" in result.text
    assert guard.read_text() == "as it was"


@pytest.mark.parametrize(
    "first",
    [
        "touch pyvenv.cfg s/pyvenv.cfg",
        "mkdir {1..2100}",
        pytest.param(
            "for n in {1..210}; do git init -q '!'$n; done", marks=pytest.mark.slow
        ),
        pytest.param(
            "git init -q x; for n in {1..210}; do mkdir -p s/u/$n; cp -r x/.git s/u/$n; done",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_many_new_files_do_not_hide_a_guarded_path_from_the_next_command(
    ws: Walled, first: str
) -> None:
    repository = ws.root / REPOSITORY
    repository.mkdir(parents=True)
    run_git(repository, "init", "-q")
    ws.run("true")

    ws.run(first)
    ws.run(f"touch {REPOSITORY}/.git/hooks/x; mv s elsewhere")

    assert (repository / ".git/config").exists()
    assert not (repository / ".git/hooks/x").exists()


@pytest.mark.parametrize(
    ("end", "again"),
    [
        ("true", "while [ -e d/.vscode ]; do sleep 0.01; done; mkdir -p d/.vscode"),
        ("mv d node_modules", "sleep 0.5; mv node_modules d"),
        (
            "mv d x; mkdir x/.git; mv x .vscode",
            "sleep 0.5; mv .vscode d || mkdir -p d/.vscode",
        ),
        ("rm -r d", "sleep 0.5; mkdir -p d/.vscode"),
    ],
)
def test_a_guarded_path_created_by_a_concurrent_command_is_removed(
    ws: Walled, end: str, again: str
) -> None:
    """Two commands run at a time: the second finds the file of the first, and undoes it."""

    async def main() -> None:
        async def run(line: str) -> None:
            await ws.commands.run(line, cwd=str(ws.root), seconds=20, confines=WRITING)

        async with anyio.create_task_group() as group:
            wait = "until [ -e begun ]; do sleep 0.01; done; sleep 0.2"
            group.start_soon(
                run, f"mkdir -p d/.vscode; touch made; {wait}; {end}; touch over"
            )
            while not (ws.root / "made").exists():
                await anyio.sleep(0.01)
            until = "until [ -e over ]; do sleep 0.01; done"
            group.start_soon(run, f"touch begun; {until}; {again}; touch d/.vscode/x")

    anyio.run(main)

    assert not (ws.root / "d/.vscode").exists()


def test_a_guarded_path_approved_for_one_command_is_guarded_for_the_next(
    ws: Walled,
) -> None:
    ws.run("true", opened=(ws.root / ".git/config",))

    ws.run("git init -q; git config core.fsmonitor x")

    assert not (ws.root / ".git/config").exists()


def test_guards_work_after_a_command_that_could_not_start(
    ws: Walled, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws.run("true")
    with monkeypatch.context() as patched:
        patched.setattr(type(ws.sandbox), "_bwrap", "")
        with pytest.raises(ToolFailed):
            ws.run("true")
    (ws.root / ".env").write_text("as it was")

    ws.run("echo x > .env")

    assert (ws.root / ".env").read_text() == "as it was"


def test_bubblewrap_loads_no_library_of_the_workspace(
    ws: Walled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that cannot be loaded would make bubblewrap fail visibly."""
    for name in ("libcap.so.2", "libselinux.so.1", "libpcre2-8.so.0"):
        (ws.root / name).write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(ws.root))
    ws.commands = ShellCommands(os.environ, lambda: ws.sandbox)

    assert ws.sandbox.kind == "bubblewrap"
    assert ws.run("echo $LD_LIBRARY_PATH").text == f"{ws.root}\n"


def test_commands_run_although_links_with_denied_names_exist(tmp_path: Path) -> None:
    """Every command failed before: bubblewrap did not find the path to cover."""
    needs_bubblewrap()
    (tmp_path / "out").mkdir()
    root = tmp_path / "ws"
    links = {"a": "file", "b": str(tmp_path / "out"), "c": "/usr", "d": "nowhere", "e": "."}
    with walled(root, unread=lambda: [str(root / n) for n in ("file", *links)]) as place:
        (root / "file").write_text("a secret")
        for name, goal in links.items():
            (root / name).symlink_to(goal)

        result = place.run("cat file a; mv file other; echo went on")

    assert "secret" not in result.text
    assert "went on" in result.text
    assert (root / "file").exists()
