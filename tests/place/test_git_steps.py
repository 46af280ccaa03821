"""What git notes to run when it continues is undone, if a command wrote it that was not asked about.

A rebase can continue: git itself says what it would do.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.place.guard_watch import GuardedWorkspace, undo_after_kill
from refold.place.port import GuardReport
from refold.values.tools import Confinement
from tests.place.test_guarded_changes import git
from tests.place.walled import LONG, Walled, needs_bubblewrap, walled

EXEC = "exec touch ran"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Walled]:
    """Yield a repository in which a rebase of `side` onto `main` meets a conflict."""
    needs_bubblewrap()
    with walled(tmp_path / "ws", states=str(tmp_path / "states")) as result:
        git(result.root, "init", "-q", "-b", "main")
        git(result.root, "config", "user.name", "a")
        git(result.root, "config", "user.email", "a@example.org")
        for branch, texts in (("main", ("one", "two")), ("side", ("three", "four"))):
            if branch == "side":
                git(result.root, "checkout", "-q", "-b", branch, "HEAD~1")
            for text in texts:
                (result.root / "file").write_text(text)
                git(result.root, "add", "file")
                git(result.root, "commit", "-q", "-m", text)
        yield result


def stop_at_conflict(root: Path, *text: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "rebase", *text, "main")


def continue_rebase(root: Path) -> None:
    """Continue the rebase as the user does, whatever git reports."""
    (root / "file").write_text("both")
    git(root, "add", "file")
    subprocess.run(
        ["git", "-c", "core.editor=true", "rebase", "--continue"],
        cwd=root, check=False, capture_output=True,
    )  # fmt: skip


def list_changes(report: GuardReport, root: Path) -> list[tuple[str, str]]:
    return [(os.path.relpath(one.path, root), one.fate) for one in report.undone]


STEPS = ".git/rebase-merge/git-rebase-todo"


@pytest.mark.parametrize(
    "line", [EXEC, f" \t{EXEC}", EXEC.replace("exec", "x"), f"{EXEC}\r"]
)
def test_a_line_planted_in_the_rebase_of_the_user_is_removed_and_not_run(
    place: Walled, line: str
) -> None:
    stop_at_conflict(place.root)
    before = (place.root / STEPS).read_text()

    done = place.run(f"printf '%s\\n' '{line}' | cat - {STEPS} > n; mv n {STEPS}")
    after = (place.root / STEPS).read_text()
    continue_rebase(place.root)

    assert list_changes(done.guarded, place.root) == [(STEPS, "restored")]
    assert (after, (place.root / "ran").exists()) == (before, False)


PLANTS = {
    "a rebase that is not": (
        f"mkdir .git/rebase-merge; echo '{EXEC}' > {STEPS}", [(STEPS, "moved")]
    ),
    "a list that lies elsewhere": (
        f"mkdir list; ln -s ../list .git/rebase-merge; echo '{EXEC}' > list/git-rebase-todo",
        [(".git/rebase-merge", "moved")],
    ),
    "a link to a list": (
        f"mkdir .git/rebase-merge; echo '{EXEC}' > list; ln -s ../../list {STEPS}",
        [(STEPS, "moved")],
    ),
    "a pipe": (f"mkdir .git/rebase-merge; mkfifo {STEPS}", [(STEPS, "moved")]),
    "a list too long to be read": (
        f"mkdir .git/rebase-merge; head -c 2000000 /dev/zero > {STEPS}", [(STEPS, "moved")]
    ),
    "a strategy": (
        "mkdir .git/rebase-merge; echo x/../../evil > .git/rebase-merge/strategy",
        [(".git/rebase-merge/strategy", "moved")],
    ),
    "a strategy of cherry-pick": (
        "mkdir .git/sequencer; printf '[options]\\n\\tstrategy = x' > .git/sequencer/opts",
        [(".git/sequencer/opts", "moved")],
    ),
    "in a new repository": (
        f"git init -q new; mkdir new/.git/rebase-merge; echo '{EXEC}' > new/{STEPS}",
        [(f"new/{STEPS}", "moved")],
    ),
    "in a linked worktree": (
        f"git worktree add -q tree main; cd tree; d=$(git rev-parse --git-dir);"
        f"mkdir $d/rebase-merge; echo '{EXEC}' > $d/rebase-merge/git-rebase-todo",
        [(".git/worktrees/tree/rebase-merge/git-rebase-todo", "moved")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", PLANTS)
def test_planted_steps_of_git_are_quarantined(place: Walled, attack: str) -> None:
    command, moved = PLANTS[attack]

    done = place.run(command)

    assert (done.code, list_changes(done.guarded, place.root)) == (0, moved)


def test_a_command_can_continue_its_rebase_after_conflicts(place: Walled) -> None:
    stopped = place.run("git rebase main")
    ended = place.run(
        "echo both > file; git add file; GIT_EDITOR=true git rebase --continue; "
        "echo all > file; git add file; GIT_EDITOR=true git rebase --continue"
    )

    assert (stopped.code, ended.code) == (1, 0), ended.text
    assert stopped.guarded.undone == ended.guarded.undone == ()
    assert git(place.root, "log", "--format=%s", "main..").split() == ["four", "three"]


def test_an_approved_rebase_keeps_its_exec_steps(place: Walled) -> None:
    stopped = run_approved(place, "git rebase --exec 'touch ran' main")
    ended = place.run(
        "echo both > file; git add file; GIT_EDITOR=true git rebase --continue"
    )

    assert list_changes(stopped, place.root) == []
    assert stopped.accepted == (str(place.root / STEPS),)
    assert (ended.guarded.undone, (place.root / "ran").exists()) == ((), True)


def test_an_approved_rebase_in_a_worktree_keeps_its_exec_steps(
    place: Walled,
) -> None:
    git(place.root, "checkout", "-q", "main")
    git(place.root, "worktree", "add", "-q", "tree", "side")

    done = run_approved(place, "cd tree && git rebase --exec 'touch ran' main", "tree")

    assert list_changes(done, place.root) == []
    assert len(done.accepted) == 1


def test_exec_steps_of_an_unapproved_rebase_are_quarantined(place: Walled) -> None:
    stopped = place.run("git rebase --exec 'touch ran' main")

    assert list_changes(stopped.guarded, place.root) == [(STEPS, "moved")]


def run_approved(place: Walled, command: str, folder: str = "") -> GuardReport:
    top = place.root / folder
    texts = (str(top / ".git/rebase-merge"),)

    async def main() -> GuardReport:
        done = await place.commands.run(
            command, cwd=str(place.root), seconds=LONG,
            confines=Confinement(writes=True, opened=texts),
        )  # fmt: skip
        return done.guarded

    return anyio.run(main)


def test_a_git_step_planted_before_a_kill_is_undone(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    git(root, "init", "-q")
    workspace = GuardedWorkspace(
        (str(root),), quarantine=str(tmp_path / "q"), states=str(tmp_path / "states")
    )
    script = (
        "import os, sys\n"
        "from refold.place.guard_state import AllowedPaths\n"
        "from refold.place.guard_watch import GuardedWorkspace, GuardWatch\n"
        f"watch = GuardWatch({workspace!r})\n"
        "watch.begin(AllowedPaths())\n"
        f"os.mkdir({str(root)!r} + '/.git/rebase-merge')\n"
        f"open({str(root / STEPS)!r}, 'w').write({EXEC!r})\n"
        "os._exit(0)\n"
    )
    import sys

    subprocess.run([sys.executable, "-c", script], check=True)

    undo = undo_after_kill(workspace)

    assert [(os.path.relpath(one.path, root), one.fate) for one in undo] == [
        (STEPS, "moved")
    ]
