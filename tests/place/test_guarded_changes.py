"""What a command does to guarded paths is undone, even where no mount holds it back.

These commands leave the mounts of the sandbox where they can, as an attacker does. Git itself says
what it would run afterwards.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread

import anyio
import pytest
from msgspec import structs

from refold.place.guard_state import AllowedPaths
from refold.place.guard_watch import GuardedWorkspace, GuardWatch, undo_after_kill
from refold.place.port import GuardReport
from refold.place.quarantine import Quarantine
from refold.values.tools import Confinement
from tests.place.walled import Walled, needs_bubblewrap, walled
from tests.redteam.without_mounts import WITHOUT_MOUNTS

RUNS = '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch ran; false"\n'


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Walled]:
    """Yield a workspace with a repository of the user, keys and settings of an editor.

    Its commands make namespaces if a test says so.
    """
    needs_bubblewrap()
    namespaces = bool(getattr(request, "param", False))
    with walled(
        tmp_path / "ws", states=str(tmp_path / "states"), user_namespaces=namespaces
    ) as result:
        git(result.root, "init", "-q", "-b", "main")
        (result.root / ".env").write_text("KEY=as it was\n")
        (result.root / ".vscode").mkdir()
        (result.root / ".vscode/tasks.json").write_text("{}")
        (result.root / ".git/hooks/pre-push").write_text("#!/bin/sh\n")
        yield result


def git(folder: Path, *text: str) -> str:
    """Run git as the user does, without the user's own settings."""
    environ = {
        **os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
    }  # fmt: skip
    done = subprocess.run(
        ["git", *text], cwd=folder, env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout


def programs(root: Path) -> list[str]:
    """Return the programs that git would run: its settings from files, in every directory
    of the tree.
    """
    lines = set[str]()
    for folder, folders, _ in os.walk(root):
        folders[:] = [name for name in folders if name not in ("objects", "refs", ".git")]
        completed_process = subprocess.run(
            ["git", "config", "--show-origin", "--list"], cwd=folder, text=True, check=False,
            env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nowhere"},
            capture_output=True,
        )  # fmt: skip
        lines.update(
            line for line in completed_process.stdout.splitlines() if "fsmonitor" in line
        )
    hooks = (root / ".git/hooks").glob("*")
    lines.update(str(hook) for hook in hooks if not hook.name.endswith(".sample"))
    return sorted(lines)


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


def append(name: str, text: str) -> None:
    Path(name).write_text(Path(name).read_text() + text)


def guarded_bytes(root: Path) -> Mapping[str, bytes]:
    """Return all guarded files of the `place`."""
    names = (".git/config", ".git/hooks/pre-push", ".env", ".vscode/tasks.json")
    return {name: (root / name).read_bytes() for name in names}


REPOSITORY = "mkdir -p {d}/objects {d}/refs; echo ref: refs/heads/main > {d}/HEAD; printf %s '{runs}' > {d}/config"


def repository(directory: str) -> str:
    return REPOSITORY.format(d=directory, runs=RUNS)


@pytest.mark.parametrize(
    "code",
    [
        "os.rename('.git/hooks', '.git/h'); os.mkdir('.git/hooks'); write('.git/hooks/x', '')",
        f"os.rename('.git/config', 'c'); write('.git/config', {RUNS!r})",
        "append('.git/config', '[core]\\n\\tfsmonitor = x\\n')",
        "os.rename('.env', 'notes.txt')",
        "os.rename('.env', 'a'); os.mkdir('b'); os.rename('a', 'b/a'); write('.env', '')",
        "os.rename('.vscode', 'v'); os.mkdir('.vscode'); write('.vscode/tasks.json', 'x')",
        "write('.vscode/tasks.json', 'x'); write('.vscode/launch.json', '')",
        "os.rename('.git/hooks/pre-push', '.git/hooks/pre-commit')",
        "os.chmod('.git/hooks/pre-push', 0o777)",
        "os.link('.git/config', 'c')",
        "os.remove('.env'); os.symlink('/etc/passwd', '.env')",
        "os.rename('.git', 'g'); os.rename('g', '.git'); os.rename('.git/config', 'c')",
    ],
)
def test_a_change_of_guarded_files_is_undone_byte_for_byte(
    place: Walled, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is made as by a command without a sandbox."""
    before, texts = guarded_bytes(place.root), programs(place.root)
    monkeypatch.chdir(place.root)
    watch, allowed = place.sandbox.watch, AllowedPaths()

    watch.begin(allowed)
    exec(code, {"os": os, "write": write, "append": append})
    done = watch.end(allowed)

    assert (guarded_bytes(place.root), programs(place.root)) == (before, texts)
    assert done.undone
    assert "KEY" not in place.run("grep -rh KEY . --exclude=.env || true").text


@pytest.mark.parametrize("place", [False, True], ids=["filter", "no filter"], indirect=True)
def test_a_command_in_its_own_namespace_cannot_change_guarded_files(
    place: Walled,
) -> None:
    """Where a command may create a namespace, its change is put back."""
    before, texts = guarded_bytes(place.root), programs(place.root)
    code = (
        "os.rename('.env', 'notes.txt'); os.rename('.git/config', 'c'); "
        f"open('.git/config', 'w').write({RUNS!r})"
    )

    done = place.run(
        f"cat > /tmp/x.py <<'E'\n{WITHOUT_MOUNTS}\nE\npython3 /tmp/x.py {shlex.quote(code)}"
    )

    assert bool(done.guarded.undone) == place.sandbox.config.user_namespaces, done.text
    assert (guarded_bytes(place.root), programs(place.root)) == (before, texts)
    assert "KEY" not in place.run("cat notes.txt").text


@pytest.mark.parametrize(
    "commands",
    [
        # A commondir that hides the contents of the directory itself.
        (f"{repository('.git/modules/evil')}; echo ../empty > .git/commondir; mkdir empty",
         "mkdir sub; echo 'gitdir: ../.git/modules/evil' > sub/.git"),
        (f"{repository('.git/modules/a/b/c/evil')}",
         "mkdir sub; echo 'gitdir: ../.git/modules/a/b/c/evil' > sub/.git"),
        (f"{repository('.git/x/evil')}", "mkdir sub; echo 'gitdir: ../.git/x/evil' > sub/.git"),
        (f"{repository('.git/worktrees/w')}", "mkdir w; echo 'gitdir: ../.git/worktrees/w' > w/.git"),
        (f"{repository('.git/modules/a')}; {repository('.git/modules/a/modules/b')}",
         "mkdir -p s; echo 'gitdir: ../.git/modules/a/modules/b' > s/.git"),
        # A pointer to a directory that is not a repository yet.
        ("mkdir s; echo 'gitdir: d' > s/.git", repository("s/d")),
        ("mkdir s; echo 'gitdir: ../d' > s/.git; mkdir d; echo x > d/HEAD", repository("d")),
        # An embedded repository that no name betrays.
        (repository("d"), "true"),
        (repository("a/b/c/d"), "true"),
        (f"mkdir d; printf %s '{RUNS}' > d/config", repository("d")),
        (f"mkdir -p d/hooks o; echo x > d/hooks/pre-commit; {repository('o')}; "
         "echo ref: refs/heads/x > d/HEAD; echo ../o > d/commondir", "true"),
        (f"{repository('.git/modules/a')}; ln -s .git/modules/a d", "true"),
    ],
)  # fmt: skip
def test_a_repository_created_by_commands_makes_git_run_no_program(
    place: Walled, commands: tuple[str, str]
) -> None:
    texts = programs(place.root)

    for command in commands:
        place.run(command)

    assert programs(place.root) == texts


def test_guarded_changes_of_a_running_command_are_undone_when_another_ends(
    place: Walled,
) -> None:
    watch = place.sandbox.watch
    first, second = AllowedPaths(), AllowedPaths(named=("/nowhere",))
    watch.begin(first)
    watch.begin(second)
    (place.root / ".envrc").write_text("x")
    (place.root / ".env").write_text("x")

    done = watch.end(second)

    assert [Path(one.path).name for one in done.undone] == [".envrc", ".env"]
    assert (place.root / ".env").read_text() == "KEY=as it was\n"
    assert watch.end(first).undone == ()


def test_guarded_changes_of_the_user_between_commands_stay(place: Walled) -> None:
    place.run("true")
    git(place.root, "config", "core.pager", "less")
    (place.root / ".vscode/settings.json").write_text("{}")
    (place.root / ".env").write_text("KEY=new\n")

    done = place.run("touch a")

    assert done.guarded.undone == ()
    assert (place.root / ".env").read_text() == "KEY=new\n"
    assert git(place.root, "config", "core.pager") == "less\n"


def test_a_guarded_change_of_the_user_during_a_command_can_be_restored(
    place: Walled, tmp_path: Path
) -> None:
    watch, allowed = place.sandbox.watch, AllowedPaths()
    watch.begin(allowed)
    git(place.root, "config", "core.pager", "less")

    (change,) = watch.end(allowed).undone

    assert "core" in (place.root / ".git/config").read_text()
    assert "pager" not in (place.root / ".git/config").read_text()
    assert "refold quarantine restore" in change.sentence(change.path)
    quarantine = Quarantine(Path(place.sandbox.config.quarantine))
    quarantine.restore(quarantine.find(Path(change.goal).name))
    assert git(place.root, "config", "core.pager") == "less\n"


def test_an_approved_change_of_a_guarded_file_is_accepted_and_recorded(
    place: Walled,
) -> None:
    config = place.root / ".git/config"

    done = place.run("git config core.pager less", opened=(config,))

    assert (done.guarded.undone, done.guarded.accepted) == ((), (str(config),))
    assert git(place.root, "config", "core.pager") == "less\n"


@pytest.mark.parametrize(
    ("command", "stays"),
    [
        ("git remote add origin https://example.org/x", True),
        ("git config branch.main.remote origin", True),
        ("git config core.fsmonitor x", False),
        (r"printf '[core]\n\tpager = touch PWNED\\\n\n' >> .git/config", False),
        ("echo x > .git/hooks/pre-commit", False),
    ],
)
def test_unapproved_git_may_write_only_settings_that_run_no_program(
    place: Walled, command: str, stays: bool
) -> None:
    before = programs(place.root), (place.root / ".git/config").read_bytes()
    names = ("config", "hooks")
    confines = Confinement(
        writes=True, of_git=tuple(str(place.root / ".git" / name) for name in names)
    )

    async def main() -> None:
        await place.commands.run(
            command, cwd=str(place.root), seconds=30, confines=confines
        )

    anyio.run(main)

    assert programs(place.root) == before[0]
    assert ((place.root / ".git/config").read_bytes() != before[1]) == stays


def test_two_watches_do_not_undo_changes_that_the_other_allowed_or_restored(
    tmp_path: Path,
) -> None:
    """They stand for two conversations in one workspace, or two processes."""
    (tmp_path / "ws").mkdir()
    env, envrc = tmp_path / "ws/.env", tmp_path / "ws/.envrc"
    env.write_text("as it was")
    ours = GuardedWorkspace(
        (str(tmp_path / "ws"),), (), str(tmp_path / "away"), str(tmp_path / "states")
    )
    one, two = GuardWatch(ours), GuardWatch(ours)
    first, second = AllowedPaths(), AllowedPaths(named=(str(envrc),))
    one.begin(first)
    env.write_text("planted")
    two.begin(second)
    envrc.write_text("as the user saw")
    accepted = two.end(second).accepted
    two.begin(third := AllowedPaths())
    undone = one.end(first).undone
    last = two.end(third)

    assert accepted == (str(envrc),)
    assert [change.path for change in undone] == [str(env)]
    assert last.undone == ()
    assert (env.read_text(), envrc.read_text()) == ("as it was", "as the user saw")


def kill_during_command(tmp_path: Path, script: str) -> GuardedWorkspace:
    """Return a refold that is killed while a command runs: `script` is what that does."""
    import signal
    import sys

    root = tmp_path / "ws"
    workspace = GuardedWorkspace(
        (str(root),), (), str(tmp_path / "away"), str(tmp_path / "states")
    )
    code = (
        "import os, signal\n"
        "from refold.place.guard_state import AllowedPaths\n"
        "from refold.place.guard_watch import *\n"
        f"watch = GuardWatch({workspace!r})\n"
        f"os.chdir({str(root)!r})\n{script}\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    return workspace


BEGIN = "allowed = AllowedPaths(); watch.begin(allowed)\n"


@pytest.mark.parametrize(
    ("script", "undone"),
    [
        (BEGIN + "open('.envrc', 'w'); open('.env', 'w').write('planted')", [".env", ".envrc"]),
        (BEGIN + "os.remove('.env')", [".env"]),
        (BEGIN + "os.rename('.env', 'notes')", [".env", "notes"]),
        (BEGIN + "os.symlink('/etc/passwd', '.envrc')", [".envrc"]),
        (BEGIN + "os.chmod('.env', 0o777); os.mkdir('.idea')", [".env", ".idea"]),
        (BEGIN + "os.makedirs('a/.vscode'); open('a/.vscode/tasks.json', 'w')", ["a/.vscode"]),
        (BEGIN + "watch.end(allowed)\nopen('.envrc', 'w')", []),
    ],
)  # fmt: skip
def test_guarded_changes_before_a_kill_are_undone_at_the_next_start(
    tmp_path: Path, script: str, undone: list[str]
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/.env").write_text("as it was")

    workspace = kill_during_command(tmp_path, script)
    done = undo_after_kill(workspace)

    assert sorted(os.path.relpath(one.path, tmp_path / "ws") for one in done) == undone
    assert (tmp_path / "ws/.env").read_text() == "as it was"
    assert undo_after_kill(workspace) == []


def test_a_planted_file_undone_after_a_kill_is_not_restored_by_another_refold(
    tmp_path: Path,
) -> None:
    """The other refold began a command while the planted file was there, and takes it for
    the user's.
    """
    (tmp_path / "ws").mkdir()
    workspace = kill_during_command(
        tmp_path, BEGIN + "open('.envrc', 'w').write('planted')"
    )
    other, allowed = GuardWatch(workspace), AllowedPaths()

    other.begin(allowed)
    undone = undo_after_kill(workspace)
    last = other.end(allowed)

    assert [os.path.basename(one.path) for one in undone] == [".envrc"]
    assert last.undone == ()
    assert not (tmp_path / "ws/.envrc").exists()


def test_guarded_changes_of_the_user_after_a_kill_stay(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    workspace = kill_during_command(tmp_path, BEGIN)
    (state,) = (tmp_path / "states").glob("*.running")
    os.utime(state, (0, 0))  # long ago
    (tmp_path / "ws/.envrc").write_text("of the user")

    assert undo_after_kill(workspace) == []
    assert (tmp_path / "ws/.envrc").read_text() == "of the user"


def test_changes_of_a_killed_refold_are_undone_only_in_its_own_workspace(
    tmp_path: Path,
) -> None:
    (tmp_path / "ws").mkdir()
    workspace = kill_during_command(tmp_path, BEGIN + "open('.envrc', 'w')")
    elsewhere = GuardedWorkspace(
        (str(tmp_path / "other"),), (), workspace.quarantine, workspace.states
    )

    assert undo_after_kill(elsewhere) == []
    assert [one.path for one in undo_after_kill(workspace)] == [str(tmp_path / "ws/.envrc")]


def test_a_stored_guard_state_is_private_and_deleted_with_its_session(
    place: Walled, tmp_path: Path
) -> None:
    modes: list[int] = []
    watch, allowed = place.sandbox.watch, AllowedPaths()
    watch.begin(allowed)
    modes += [
        path.stat().st_mode & 0o777 for path in (tmp_path / "states").glob("*.running")
    ]
    watch.end(allowed)
    place.sandbox.close()

    assert modes == [0o600]
    assert [path.name for path in (tmp_path / "states").iterdir()] == []


FLOWS = {
    "init": "git init -q a && git -C a status",
    "clone": "git clone -q . b && git -C b log --format=%s",
    "worktree": "git worktree add -q wt && git -C wt status --short",
    "commit": "git -c user.name=a -c user.email=a@b commit -qm two --allow-empty && git log -1",
    "bare": "git init -q --bare c && git -C c rev-parse --is-bare-repository",
    "venv": "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'",
    "separate": "git init -q --separate-git-dir=g w && git -C w status --short",
}


@pytest.mark.parametrize("flow", FLOWS)
def test_everyday_commands_succeed_and_none_of_their_changes_is_undone(
    place: Walled, flow: str
) -> None:
    git(place.root, "commit", "-qm", "one", "--allow-empty")

    done = place.run(FLOWS[flow])

    assert (done.code, done.guarded.undone) == (0, ()), done.text
    assert place.run(FLOWS[flow].rpartition("&& ")[2]).code == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rapidly_replaced_git_config_is_always_restored(place: Walled) -> None:
    """A command exchanges a settings file until it is killed: a thousand times."""
    watch, config = place.sandbox.watch, place.root / ".git/config"
    before, evil = config.read_bytes(), RUNS.encode()
    for number in range(1000):
        allowed = AllowedPaths()
        watch.begin(allowed)
        for _ in range(number % 5 + 1):
            new = place.root / "new"
            new.write_bytes(evil if number % 2 else evil + before)
            new.replace(config)
        if number % 3 == 0:
            os.utime(config, ns=(0, config.stat().st_mtime_ns))
        watch.end(allowed)
        assert config.read_bytes() == before


def list_protected(place: Walled) -> list[str]:
    """Return the guarded paths that a command with the filter of today could not write."""
    return [
        str(place.root / name) for name in (".vscode", ".git/hooks", ".git/config", ".env")
    ]


def test_a_change_of_the_user_in_a_guarded_directory_stays_and_is_reported_once(
    place: Walled,
) -> None:
    watch, tasks = place.sandbox.watch, place.root / ".vscode/tasks.json"
    reports = list[GuardReport]()
    for text in ("1", "2"):
        watch.begin(allowed := AllowedPaths())
        watch.record_unwritable(list_protected(place))
        tasks.write_text(text)
        (place.root / ".vscode" / text).touch()
        (place.root / ".git/hooks/pre-push").unlink(missing_ok=True)
        reports.append(watch.end(allowed))

    tops = (str(place.root / ".git/hooks"), str(place.root / ".vscode"))
    assert reports == [GuardReport(by_others=tops), GuardReport()]
    assert (tasks.read_text(), (place.root / ".vscode/2").exists()) == ("2", True)
    assert not (place.root / ".git/hooks/pre-push").exists()
    assert len(reports[0].sentences(str)) == 2


@pytest.mark.parametrize(
    "change",
    [
        # The directory is another one.
        "os.rename('.vscode', 'v'); os.mkdir('.vscode'); write('.vscode/tasks.json', 'x')",
        # A file is another one, which any command could do.
        "os.rename('.git/config', 'c'); write('.git/config', 'x')",
        # It has another name, by which it was written.
        "write('other-name', 'x')",
    ],
)
def test_a_guarded_change_outside_of_mounted_directories_is_undone(
    place: Walled, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / ".vscode/linked.json").write_text("as it was")
    os.link(place.root / ".vscode/linked.json", place.root / "other-name")
    monkeypatch.chdir(place.root)
    before = guarded_bytes(place.root)
    watch, allowed = place.sandbox.watch, AllowedPaths()
    watch.begin(allowed)
    watch.record_unwritable(list_protected(place))

    exec(change, {"os": os, "write": write})
    report = watch.end(allowed)

    assert report.undone
    assert guarded_bytes(place.root) == before
    assert (place.root / ".vscode/linked.json").read_text() == "as it was"


def test_a_change_is_undone_if_one_command_ran_without_that_directory_mounted(
    place: Walled,
) -> None:
    watch, tasks = place.sandbox.watch, place.root / ".vscode/tasks.json"
    first, second = AllowedPaths(), AllowedPaths(named=("/nowhere",))
    watch.begin(first)
    watch.record_unwritable(list_protected(place))
    watch.begin(second)
    watch.record_unwritable(list_protected(place)[1:])
    watch.end(second)
    tasks.write_text("x")

    report = watch.end(first)

    assert [change.path for change in report.undone] == [str(tasks)]
    assert tasks.read_text() == "{}"


@pytest.mark.parametrize("namespaces", [False, True], ids=["filter", "no filter"])
def test_changes_by_other_programs_stay_only_if_commands_cannot_create_namespaces(
    tmp_path: Path, *, namespaces: bool
) -> None:
    needs_bubblewrap()
    with walled(tmp_path / "ws", user_namespaces=namespaces) as place:
        (place.root / ".idea").mkdir()
        ready, go = place.root / "ready", place.root / "go"
        os.mkfifo(ready)
        os.mkfifo(go)

        def edit() -> None:
            ready.read_bytes()
            (place.root / ".idea/workspace.xml").write_text("of the editor")
            go.write_text("")

        editor = Thread(target=edit)
        editor.start()
        done = place.run("echo > ready; cat go")
        editor.join()

    stays = (tmp_path / "ws/.idea/workspace.xml").exists()
    assert (done.code, stays, bool(done.guarded.by_others)) == (
        0,
        not namespaces,
        not namespaces,
    )


def test_after_a_kill_changes_in_mounted_directories_stay(tmp_path: Path) -> None:
    (tmp_path / "ws/.idea").mkdir(parents=True)
    idea = str(tmp_path / "ws/.idea")
    script = f"{BEGIN}watch.record_unwritable([{idea!r}])\nopen({idea!r} + '/x', 'w')\nopen('.envrc', 'w')"

    undone = undo_after_kill(kill_during_command(tmp_path, script))

    assert [one.path for one in undone] == [str(tmp_path / "ws/.envrc")]
    assert (tmp_path / "ws/.idea/x").exists()


def test_the_notice_of_an_undone_change_names_the_command_that_restores_it(
    place: Walled, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from refold.cli import main

    monkeypatch.setenv("REFOLD_HOME", str(place.root.parent))
    place.sandbox.config = structs.replace(
        place.sandbox.config, quarantine=str(place.root.parent / "quarantine")
    )
    watch, allowed = place.sandbox.watch, AllowedPaths()
    watch.begin(allowed)
    git(place.root, "config", "core.pager", "less")
    (sentence,) = watch.end(allowed).sentences(str)

    command = sentence.split("`")[1]
    code = main.main(command.split()[1:])

    assert code == 0
    assert git(place.root, "config", "core.pager") == "less\n"
    assert sentence.count(". ") == 0


def test_the_size_of_a_link_in_quarantine_is_that_of_the_link(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.mkdir()
    (large / "file").write_bytes(b"x" * 100_000)
    place = tmp_path / "quarantine"
    place.mkdir()
    (place / "1-link").symlink_to(large)

    (item,) = Quarantine(place).items()

    assert item.size == (place / "1-link").lstat().st_size
