"""Programs that refold runs itself are found only where no other user can plant one."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from refold import programs
from refold.cli.output import edit
from refold.config.api_keys import run_key_command
from refold.console.editor import edit_text
from refold.errors import BadInput
from refold.programs import Programs

OTHER_USER = 12345


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


def write_program(directory: Path, name: str = "git", says: str = "planted") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(0o755)
    return program


def path_of_folders(*folders: Path | str) -> Mapping[str, str]:
    return {"PATH": ":".join(map(str, folders)), "HOME": "/nonexistent"}


@pytest.mark.parametrize(
    "inside", [".venv/bin", "node_modules/.bin", "bin", ".", "a/very/deep/one"]
)
def test_a_program_in_the_workspace_is_never_used(
    workspace: Path, tmp_path: Path, inside: str
) -> None:
    write_program(workspace / inside)
    good = write_program(tmp_path / "tools")
    programs = Programs(path_of_folders(workspace / inside, good.parent), (str(workspace),))

    assert programs.find("git") == str(good)
    assert [path for path, _ in programs.skipped_programs("git")] == [
        str(workspace / inside / "git")
    ]
    assert str(workspace) in programs.skipped_programs("git")[0][1]


@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin", ".."])
def test_relative_path_entries_are_ignored(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    write_program(workspace / "bin")
    write_program(workspace)
    monkeypatch.chdir(workspace)

    assert (
        Programs(path_of_folders(entry, "/nonexistent"), (str(workspace),)).find("git")
        == ""
    )


def test_links_into_the_workspace_are_resolved_and_not_used(
    workspace: Path, tmp_path: Path
) -> None:
    """As the directory, as the program, and as one link of a chain that ends well."""
    good = write_program(tmp_path / "tools")
    write_program(workspace / "bin")
    (tmp_path / "linked").symlink_to(workspace / "bin")
    (tmp_path / "direct").mkdir()
    (tmp_path / "direct/git").symlink_to(workspace / "bin/git")
    (workspace / "hop").symlink_to(good)
    (tmp_path / "hops").mkdir()
    (tmp_path / "hops/git").symlink_to(workspace / "hop")

    for folder in ("linked", "direct", "hops"):
        assert (
            Programs(path_of_folders(tmp_path / folder), (str(workspace),)).find("git")
            == ""
        ), folder


def test_a_link_to_a_system_program_is_used(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")

    programs = Programs(path_of_folders(tmp_path / "bin"), (str(workspace),))

    assert programs.find("sh") == str(tmp_path / "bin/sh")


@pytest.mark.parametrize(("mode", "taken"), [(0o755, True), (0o757, False), (0o777, False)])
def test_a_program_that_everybody_can_write_is_not_used(
    workspace: Path, tmp_path: Path, mode: int, taken: bool
) -> None:
    for path in (write_program(tmp_path / "a"), write_program(tmp_path / "b").parent):
        path.chmod(mode)
        program = tmp_path / ("a" if path.name == "git" else "b") / "git"

        assert (
            bool(Programs(path_of_folders(program.parent), (str(workspace),)).find("git"))
            is taken
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_program_of_another_user_or_group_is_not_used(
    workspace: Path, tmp_path: Path
) -> None:
    theirs, groups, above = (write_program(tmp_path / n / "bin") for n in ("t", "g", "u"))
    os.chown(theirs, OTHER_USER, 0)
    os.chown(groups.parent, 0, OTHER_USER)
    groups.parent.chmod(0o775)
    os.chown(above.parent.parent, OTHER_USER, 0)

    for program in (theirs, groups, above):
        assert (
            Programs(path_of_folders(program.parent), (str(workspace),)).find("git") == ""
        )


def test_programs_in_the_repository_of_the_workspace_are_not_used(
    workspace: Path,
) -> None:
    write_program(workspace / "node_modules/.bin")
    (workspace / ".git").mkdir()
    (workspace / "packages/one").mkdir(parents=True)

    programs = Programs(
        path_of_folders(workspace / "node_modules/.bin"), (str(workspace / "packages/one"),)
    )

    assert programs.find("git") == ""


def test_programs_in_a_home_directory_that_is_a_repository_are_used(tmp_path: Path) -> None:
    """Many people keep their dotfiles in such a repository."""
    (tmp_path / ".git").mkdir()
    mine = write_program(tmp_path / ".local/bin")
    (tmp_path / "work").mkdir()

    programs = Programs(
        {**path_of_folders(mine.parent), "HOME": str(tmp_path)}, (str(tmp_path / "work"),)
    )

    assert programs.find("git") == str(mine)


def test_a_program_that_appears_later_in_the_workspace_is_not_used(
    workspace: Path, tmp_path: Path
) -> None:
    good = write_program(tmp_path / "tools")
    programs = Programs(
        path_of_folders(workspace / ".venv/bin", good.parent), (str(workspace),)
    )
    before = programs.find("git")
    write_program(workspace / ".venv/bin")
    good.unlink()

    assert (before, programs.find("git")) == (str(good), "")


def test_a_program_given_by_its_absolute_path_is_used(workspace: Path) -> None:
    mine = write_program(workspace / "tools", "my-editor")

    assert Programs(path_of_folders("/bin"), (str(workspace),)).find(str(mine)) == str(mine)


def test_a_missing_or_untrusted_program_gives_its_reason(workspace: Path) -> None:
    program = write_program(workspace)
    programs = Programs(path_of_folders(workspace), (str(workspace),))

    with pytest.raises(
        BadInput, match=f"{program} is not run, because it lies in {workspace}"
    ):
        programs.require("git")
    with pytest.raises(BadInput, match="there is no program 'nowhere'"):
        programs.require("nowhere")


def test_path_of_started_programs_excludes_the_workspace(
    workspace: Path, tmp_path: Path
) -> None:
    good = write_program(tmp_path / "tools")
    programs = Programs(
        path_of_folders(workspace / "bin", good.parent, workspace), (str(workspace),)
    )

    assert programs.path.split(":")[0] == str(good.parent)
    assert str(workspace) not in programs.path


def test_programs_are_started_only_by_absolute_path() -> None:
    with pytest.raises(ValueError, match="'true' is not an absolute path"):
        programs.start(["true"])


def test_configured_programs_do_not_load_libraries_of_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = 'echo "libraries:$LD_LIBRARY_PATH$LD_PRELOAD" | tee "${1:-/dev/null}"'
    program = write_program(tmp_path)
    program.write_text(f"#!/bin/sh\n{says}\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "ws"))
    file = tmp_path / "text"

    key = run_key_command((str(program),), os.environ)
    edit([str(program)], file)
    text = anyio.run(edit_text, "", (str(program),), "text")

    assert (key, file.read_text(), text) == (
        "libraries:",
        "libraries:\n",
        "libraries:\n",
    )


def test_a_program_above_its_cpu_limit_is_killed_by_the_kernel() -> None:
    process = programs.start([sys.executable, "-c", "while True: pass"])
    programs.limit_resources(process.pid, 1)

    assert process.wait(60) < 0


def test_a_program_above_its_time_limit_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(programs.TimedOut):
        programs.run(["/bin/sh", "-c", "exec sleep 60"], 0.05)


def test_a_program_run_has_empty_stdin_and_its_output_is_captured() -> None:
    done = programs.run(["/bin/sh", "-c", "cat; echo out; echo err >&2; exit 3"], 20)

    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["doctor --offline", "tour", "-p hello --script {script}"]
)
def test_no_program_of_the_workspace_runs_on_the_host(
    workspace: Path, tmp_path: Path, command: str
) -> None:
    """The repository brings its own bwrap, git and rg, and its `.venv` is activated."""
    for name in ("bwrap", "git", "rg", "less", "uv", "pip", "bash", "sh", "python3"):
        program = write_program(workspace / ".venv/bin", name)
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\nexit 1\n")
    script = tmp_path / "script"
    calls = '{"calls":[{"tool":"bash","arguments":{"command":"ls"}}]}'
    script.write_text(calls + '\n{"text":"done"}\n')
    words = command.format(script=script).split()
    environ = {
        **os.environ,
        "PATH": f"{workspace}/.venv/bin:{os.environ['PATH']}",
        "VIRTUAL_ENV": f"{workspace}/.venv",
        "REFOLD_HOME": str(tmp_path / "home"),
    }

    refold = Path(sys.executable).parent / "refold"
    subprocess.run(
        [refold, *words], cwd=workspace, env=environ, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip

    assert [path.name for path in tmp_path.glob("ran-*")] == []


def test_a_known_workspace_is_excluded_from_later_program_searches(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for an editor or a pager does not know which directories were added."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_program(workspace / ".venv/bin", "less")
    environ = path_of_folders(workspace / ".venv/bin")

    Programs(environ, (str(workspace),))

    assert Programs(environ).find("less") == ""


@pytest.mark.anyio
async def test_a_caller_that_is_cancelled_while_a_process_starts_gets_the_process() -> None:
    process = None
    with anyio.CancelScope() as scope:
        scope.cancel()
        process = await programs.open_process(["/bin/sleep", "60"])

    assert process is not None
    process.kill()
    await process.aclose()
