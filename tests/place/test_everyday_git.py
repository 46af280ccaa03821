"""Everyday work with hooks, submodules and worktrees is not in the way of guarded paths.

Each flow runs as a command that may write, once as mode sandbox confines it and once as a command
that the user allowed. What a yes named is opened.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec import Struct

from refold.place.port import Finished
from refold.place.quarantine import Quarantine
from refold.values.tools import Confinement
from tests.place.test_guarded_changes import git
from tests.place.walled import Walled, needs_bubblewrap, walled

PERSON = "git -c user.name=a -c user.email=a@b -c protocol.file.allow=always"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Walled]:
    needs_bubblewrap()
    with walled(tmp_path / "ws", states=str(tmp_path / "states")) as result:
        root = result.root
        git(root, "init", "-q", "-b", "main")
        (root / "a").write_text("1\n")
        git(root, "add", "a")
        git(root, "commit", "-qm", "one")
        git(root, "branch", "other")
        git(root, "init", "-q", "lib")
        git(root / "lib", "commit", "-qm", "of lib", "--allow-empty")
        yield result


def run(
    place: Walled, command: str, *, narrow: bool = False, opened: tuple[str, ...] = ()
) -> Finished:
    confines = Confinement(
        writes=True, narrow=narrow, opened=tuple(str(place.root / name) for name in opened)
    )

    async def main() -> Finished:
        return await place.commands.run(
            command, cwd=str(place.root), seconds=60, confines=confines
        )

    return anyio.run(main)


class Flow(Struct, frozen=True):
    """`opened` are the paths that the question named, `expected` is the output of the last
    command.
    """

    command: str
    expected: str
    opened: tuple[str, ...] = ()


FLOWS = {
    "submodule": Flow(
        f"{PERSON} submodule --quiet add ./lib sub && {PERSON} submodule update --init && "
        "git -C sub log --format=%s",
        "of lib", (".git/config", ".gitmodules"),
    ),
    "worktree": Flow("git worktree add -q wt other && git -C wt log --format=%s", "one"),
    "rebase": Flow(
        f"git checkout -q other && echo 2 > b && git add b && {PERSON} commit -qm two && "
        f"git checkout -q main && {PERSON} commit -qm three --allow-empty && "
        f"git checkout -q other && {PERSON} rebase -q main && git log --format=%s -1",
        "two",
    ),
    "stash": Flow(f"echo 2 > a && {PERSON} stash -q && cat a && git stash pop -q && cat a", "1\n2"),
    "venv": Flow("python3 -m venv --without-pip v && v/bin/python -c 'print(1)'", "1"),
    "pre-commit install": Flow(
        "printf '#!/bin/sh\\nexec true\\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && "
        f"{PERSON} commit -qm two --allow-empty && git log --format=%s -1",
        "two", (".git/hooks/pre-commit",),
    ),
    "husky": Flow(
        "mkdir -p .husky/_ && printf 'exec true\\n' > .husky/pre-commit && "
        "cp .husky/pre-commit .husky/_/pre-commit && chmod +x .husky/_/* && "
        f"git config core.hooksPath .husky/_ && {PERSON} commit -qm two --allow-empty && "
        "git log --format=%s -1",
        "two", (".git/config",),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [True, False], ids=["mode sandbox", "allowed"])
@pytest.mark.parametrize("name", FLOWS)
def test_everyday_git_commands_succeed_and_none_of_their_changes_is_undone(
    place: Walled, name: str, *, narrow: bool
) -> None:
    flow = FLOWS[name]

    done = run(place, flow.command, narrow=narrow, opened=flow.opened)

    assert (done.code, done.guarded.undone) == (0, ()), done.text
    assert done.text.strip().endswith(flow.expected)
    again = run(place, "git status --short && touch z", narrow=narrow)
    assert (again.code, again.guarded.undone) == (0, ()), again.text


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, flow in FLOWS.items() if flow.opened])
def test_unapproved_git_commands_add_no_setting_or_hook(place: Walled, name: str) -> None:
    before = git(place.root, "config", "--local", "--list")

    run(place, FLOWS[name].command, narrow=True)

    assert git(place.root, "config", "--local", "--list") == before
    assert not (place.root / ".git/hooks/pre-commit").exists()


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("narrow", [True, False], ids=["mode sandbox", "allowed"])
def test_approved_npm_install_sets_up_husky_hooks(place: Walled, *, narrow: bool) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed here")
    (place.root / "husky.js").write_text(
        "const fs = require('fs'), c = require('child_process');\n"
        "c.execFileSync('git', ['config', 'core.hooksPath', '.husky/_'], {stdio: 'inherit'});\n"
        "fs.mkdirSync('.husky/_', {recursive: true});\n"
        "for (const hook of ['pre-commit', 'commit-msg'])\n"
        "  fs.writeFileSync('.husky/_/' + hook, '#!/bin/sh\\nexit 0\\n', {mode: 0o755});\n"
    )
    (place.root / "package.json").write_text(
        '{"name": "x", "version": "1.0.0", "scripts": {"prepare": "node husky.js"}}'
    )

    result = run(place, "npm install --offline --no-audit --no-fund", narrow=narrow)
    done = run(
        place,
        "npm install --offline --no-audit --no-fund",
        narrow=narrow,
        opened=(".git/config",),
    )

    assert result.code != 0
    assert (done.code, done.guarded.undone) == (0, ()), done.text
    assert done.guarded.accepted == (str(place.root / ".git/config"),)
    assert git(place.root, "config", "core.hooksPath") == ".husky/_\n"
    (place.root / "x").touch()
    assert run(place, "echo evil > .husky/_/pre-commit", narrow=narrow).code != 0


@pytest.mark.parametrize("elsewhere", ["../../..", "../../../..", "../../../lib"])
def test_the_config_of_a_submodule_with_a_checkout_elsewhere_is_quarantined(
    place: Walled, elsewhere: str
) -> None:
    done = run(
        place,
        "mkdir -p .git/modules && git init -q --separate-git-dir=.git/modules/sub sub && "
        f"git -C sub config core.worktree {elsewhere}",
    )

    assert [change.path for change in done.guarded.undone] == [
        str(place.root / ".git/modules/sub/config")
    ]


def test_a_submodule_that_a_script_added_can_be_restored_from_quarantine(
    place: Walled,
) -> None:
    """The question about the script named no file of git's."""
    done = run(place, f"{PERSON} submodule --quiet add ./lib sub")
    (change,) = done.guarded.undone
    sentence = change.sentence(".gitmodules")

    quarantine = Quarantine(Path(place.sandbox.config.quarantine))
    quarantine.restore(quarantine.find(Path(change.goal).name))
    git(place.root, "submodule", "--quiet", "init")

    assert f"`refold quarantine restore {Path(change.goal).name}` restores it" in sentence
    assert "as a command of its own, `git submodule` asks the user" in sentence
    assert git(place.root, "submodule", "status").startswith(" ")
