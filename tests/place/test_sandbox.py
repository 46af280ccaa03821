"""What a sandboxed command can and cannot do: a real sandbox, real attempts."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from refold.place.sandbox import remove_strays
from refold.values.tools import Confinement
from tests.place.walled import LONG, Walled, needs_bubblewrap, walled

REFUSED = "Read-only file system"


def test_a_command_can_write_only_the_workspace_and_tmp(
    ws: Walled, tmp_path: Path, home: Path
) -> None:
    paths = ["/etc/x", "/usr/x", "/var/lib/x", "/dev/x", f"{home}/x", f"{home}/.bashrc"]
    attempts = "; ".join(f"touch {path}" for path in [*paths, tmp_path / "x"])

    private = Path(f"/tmp/{uuid4().hex}")  # no other program has a file of this name

    result = ws.run(f"echo a > a; echo b > {private}; cat a {private}; {attempts}; true")

    assert result.text.startswith("a\nb\n")
    assert (ws.root / "a").read_text() == "a\n"
    assert [path for path in paths if os.path.exists(path) and path != "/dev/x"] == []
    assert not (tmp_path / "x").exists()
    assert not private.exists()


@pytest.mark.slow
@pytest.mark.peer
def test_commands_run_in_a_workspace_that_is_mounted_read_only(tmp_path: Path) -> None:
    needs_bubblewrap()
    unshare = shutil.which("unshare") or ""
    done = subprocess.run([unshare or "false", "--mount", "true"], check=False)
    if done.returncode:
        pytest.skip("unshare cannot make a mount namespace here")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    place = shlex.quote(str(tmp_path))
    (tmp_path / "use.py").write_text(
        "from pathlib import Path; from tests.place.walled import walled\n"
        f"with walled(Path({str(tmp_path)!r}), quarantine='/var/tmp/none') as ws:\n"
        "    print(ws.run('echo ran; touch x').text)\n"
    )
    script = (
        f"mount --bind {place} {place} && mount -o remount,ro,bind {place} && "
        f"exec {shlex.quote(sys.executable)} {place}/use.py"
    )

    done = subprocess.run(
        [unshare, "--mount", "sh", "-c", script], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip

    assert done.stdout.startswith("ran\n"), done.stderr
    assert REFUSED in done.stdout


def test_a_read_only_command_changes_no_file(ws: Walled) -> None:
    (ws.root / "a").write_text("as it was")

    result = ws.run(
        "echo b > a; rm a; touch c; mkdir d; chmod 0 a; cat a",
        writes=False,
    )

    assert result.text.endswith("as it was")
    assert result.looking
    assert sorted(os.listdir(ws.root)) == ["a"]


def test_a_read_only_command_leaves_no_files_in_tmp_for_later_commands(ws: Walled) -> None:
    ws.run("echo kept > /tmp/kept")

    result = ws.run(
        "cat /tmp/kept; echo x > /tmp/kept; echo s > $TMPDIR/s && cat $(mktemp) $TMPDIR/s",
        writes=False,
    )
    after = ws.run("cat /tmp/kept; find /tmp /var/tmp -type f", writes=False)

    assert result.text.startswith("kept\n")
    assert result.text.endswith("s\n")
    assert after.text == "kept\n/tmp/kept\n"


@pytest.mark.parametrize(
    "attempt",
    [
        "echo x > {}", "rm -rf {}", "mv {} y", "chmod 777 {}", "ln -f {} y && echo x > y",
        "mv .git g; mv .vscode v; mv sub s", "rm -rf .git .vscode sub .env .mcp.json",
        "echo x > y; mv y {}", "cp /etc/passwd {}", "umount {}", "mount -o remount,rw {}",
        "ln -sfn /tmp {}",
    ],
)  # fmt: skip
def test_a_command_cannot_change_guarded_files(ws: Walled, attempt: str) -> None:
    names = [".git/config", ".git/hooks/pre-commit", ".env", ".vscode/tasks.json",
             ".mcp.json", "sub/.env", "sub/.git/config"]  # fmt: skip
    for name in names:
        (ws.root / name).parent.mkdir(parents=True, exist_ok=True)
        (ws.root / name).write_text("as it was")

    ws.run("; ".join(attempt.format(name) for name in names))

    assert [(ws.root / name).read_text() for name in names] == ["as it was"] * len(names)


def test_guarded_files_that_a_command_creates_are_quarantined_and_reported(
    ws: Walled,
) -> None:
    names = [".env", ".vscode/tasks.json", "deep/er/.mcp.json", ".gitmodules", ".bashrc"]
    text = "; ".join(f"mkdir -p $(dirname {name}); echo x > {name}" for name in names)

    result = ws.run(f"{text}; ln -s /etc .claude; touch kept")

    relpaths = [os.path.relpath(one.path, ws.root) for one in result.guarded.undone]
    assert relpaths == [
        ".bashrc",
        ".claude",
        ".env",
        ".gitmodules",
        ".vscode",
        "deep/er/.mcp.json",
    ]
    assert sorted(os.listdir(ws.root)) == ["deep", "kept"]
    goals = [Path(one.goal) for one in result.guarded.undone if one.path.endswith("/.env")]
    assert [goal.read_text() for goal in goals] == ["x\n"]


def test_guarded_files_that_the_user_approved_can_be_written(ws: Walled) -> None:
    (ws.root / ".vscode").mkdir()
    (ws.root / ".vscode/tasks.json").write_text("old")
    paths = (ws.root / ".env", ws.root / ".vscode/tasks.json")

    result = ws.run("echo x > .env; echo new > .vscode/tasks.json", opened=paths)

    assert (result.code, result.guarded.undone) == (0, ())
    assert (ws.root / ".env").read_text() == "x\n"
    assert (ws.root / ".vscode/tasks.json").read_text() == "new\n"


def test_a_link_with_a_guarded_name_is_restored(ws: Walled) -> None:
    (ws.root / "real").write_text("as it was")
    (ws.root / ".env").symlink_to("real")

    ws.run("echo x > .env; rm .env; echo evil > .env; echo x > real")

    assert os.readlink(ws.root / ".env") == "real"
    assert (ws.root / "real").read_text() == "as it was"


def test_new_repositories_work_and_planted_git_hooks_are_quarantined(ws: Walled) -> None:
    git = "git -c user.name=a -c user.email=a@b"
    result = ws.run(
        f"{git} init -q sub && cd sub && touch f && {git} add f && {git} commit -qm m && "
        "git remote add origin https://example.org/x && git status --short; "
        "git init -q ../bad && git -C ../bad config core.fsmonitor 'touch /tmp/evil' && "
        "echo evil > ../bad/.git/hooks/post-checkout; mkdir ../odd; echo gitdir: /tmp/o > ../odd/.git"
    )  # fmt: skip

    relpaths = [os.path.relpath(one.path, ws.root) for one in result.guarded.undone]
    assert relpaths == ["bad/.git/config", "bad/.git/hooks/post-checkout", "odd/.git"]
    assert ws.run("git -C sub log --format=%s; git -C sub remote").text == "m\norigin\n"


def test_the_network_is_off_until_it_is_allowed(ws: Walled) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        attempt = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"

        off, on = ws.run(attempt), ws.run(attempt, network=True)

    assert "reached" not in off.text
    assert (off.offline, on.offline) == (True, False)
    assert on.text == "reached\n"


def test_a_command_reaches_its_own_server_on_loopback(ws: Walled) -> None:
    result = ws.run(
        "python3 -c \"import socket as s; a=s.create_server(('127.0.0.1',0)); "
        "b=s.create_connection(a.getsockname()); a.accept()[0].send(b'hello'); print(b.recv(9))\""
    )

    assert result.text == "b'hello'\n"


CONNECT = (
    'python3 -c "import socket,sys; socket.socket(socket.AF_UNIX).connect({!r}); '
    "print('reached')\""
)


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("place", ["tmp", "home", "abstract"])
def test_a_command_cannot_connect_to_sockets_of_other_programs(
    ws: Walled, home: Path, tmp_path: Path, place: str, network: bool
) -> None:
    path = {"tmp": str(tmp_path / "s"), "home": str(home / "s"), "abstract": f"\0{home}"}[
        place
    ]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        result = ws.run(CONNECT.format(path), network=network)

    assert "reached" not in result.text


def test_keys_are_hidden_unless_the_network_is_allowed(ws: Walled, home: Path) -> None:
    for name in (".ssh/id_ed25519", ".aws/credentials", ".netrc", ".config/gh/hosts.yml"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("s3cret")
    look = "cat ~/.ssh/id_ed25519 ~/.aws/credentials ~/.netrc ~/.config/gh/hosts.yml"

    assert "s3cret" not in ws.run(look).text
    assert ws.run(look, network=True).text == "s3cret" * 4


def test_a_command_cannot_read_data_of_refold_or_files_that_a_rule_denies(
    tmp_path: Path, home: Path
) -> None:
    needs_bubblewrap()
    own, root = home / "refold", tmp_path / "ws"
    own.mkdir()
    root.mkdir()
    for path in (own / "credentials.toml", root / ".env", root / "plain"):
        path.write_text("s3cret")
    (root / "notes").symlink_to(".env")
    unread = [str(root / ".env")]

    with walled(root, own=(str(own),), unread=lambda: unread) as ws:
        look = f"cat {own}/credentials.toml .env notes; grep -r s3 . {own}; ls {own}; cp .env /tmp"
        texts = [ws.run(look, network=network, writes=w).text
                 for network in (False, True) for w in (False, True)]  # fmt: skip
        moved = ws.run("mkdir d; mv .env d; cat d/.env .env; tar c . | grep -ac s3c").text

    assert [text.count("s3cret") for text in texts] == [1, 1, 1, 1]  # that of "plain"
    assert moved.splitlines()[-1] == "1"


def test_commands_run_in_a_home_that_contains_checkpoints_of_refold(home: Path) -> None:
    needs_bubblewrap()
    own = home / ".local/share/refold"
    checkpoints = own / "checkpoints/1f"

    def checkpoint(_: str = "") -> None:
        subprocess.run(["git", "init", "-q", "--bare", str(checkpoints)], check=True)

    checkpoint()
    with walled(home, own=(str(own),)) as ws:
        wrote = ws.run("echo hello | tee new; ls .local/share/refold")
        shutil.rmtree(checkpoints)
        result = ws.run("echo begun; sleep 0.2", on_output=checkpoint)

    assert (wrote.text, wrote.code) == ("hello\n", 0)
    assert (home / "new").read_text() == "hello\n"
    assert result.guarded.undone == ()
    assert (checkpoints / "HEAD").is_file()


@pytest.mark.parametrize("name", ["private", "private/deep", "private/deep/key"])
def test_an_unreadable_path_outside_the_workspace_cannot_be_opened(
    tmp_path: Path, home: Path, name: str
) -> None:
    needs_bubblewrap()
    key = home / "private/deep/key"
    key.parent.mkdir(parents=True)
    key.write_text("s3cret")
    (tmp_path / "ws").mkdir()

    with walled(tmp_path / "ws", unread=lambda: [str(home / name)]) as ws:
        texts = [
            ws.run(f"cat {key}; grep -r s3c {home}", writes=w).text for w in (False, True)
        ]

    assert all("s3cret" not in text for text in texts)


def test_commands_run_with_a_denied_folder_that_contains_guarded_files(
    tmp_path: Path,
) -> None:
    needs_bubblewrap()
    root = tmp_path / "ws"
    (root / "secrets/more").mkdir(parents=True)
    unread = [root / "secrets" / name for name in ("key.txt", ".env", "more/key.txt")]
    for path in unread:
        path.write_text("s3cret")
    paths = [str(path) for path in (*unread, root / "secrets", root / "secrets/more")]

    with walled(root, unread=lambda: paths) as ws:
        look = "grep -r s3cret . ; mv secrets s; echo done"
        texts = [ws.run(look, writes=w).text for w in (False, True)]

    assert all("s3cret" not in text.replace("'secrets'", "") for text in texts)
    assert all(text.endswith("done\n") for text in texts)
    assert unread[0].read_text() == "s3cret"


def test_keys_in_a_workspace_that_is_the_home_are_hidden_and_unchanged(home: Path) -> None:
    needs_bubblewrap()
    (home / ".ssh").mkdir()
    (home / ".ssh/id").write_text("s3cret")
    (home / ".bashrc").write_text("as it was")

    with walled(home) as ws:
        result = ws.run("cat .ssh/id; echo x > .ssh/id; echo x > .bashrc; echo y > plain")

    assert "s3cret" not in result.text
    assert (home / ".ssh/id").read_text() == "s3cret"
    assert (home / ".bashrc").read_text() == "as it was"
    assert (home / "plain").read_text() == "y\n"


def test_a_command_can_neither_see_nor_kill_other_processes(ws: Walled) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        try:
            result = ws.run(
                f"kill -9 {other.pid}; kill -9 {os.getpid()}; cat /proc/{os.getpid()}/environ; "
                f"strace -p {other.pid}; ls -d /proc/[0-9]* | wc -l; kill -9 -1"
            )
            assert other.poll() is None
        finally:
            other.kill()

    lines = [line for line in result.text.splitlines() if line.isdigit()]
    assert int(lines[0]) < 10


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs none /mnt", "mount --bind /tmp /etc", "mount -o remount,rw /",
        "umount -l /run", "unshare -m true", "nsenter -t 1 -m true", "chroot / true",
        "mknod /tmp/disk b 8 0", "cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness",
        "echo core > /proc/sys/kernel/core_pattern", "echo 1 > /sys/kernel/mm/ksm/run",
        "echo b > /proc/sysrq-trigger", "dmesg -C", "hostname -F /dev/null",
        "chmod 777 /etc", "chown 0 /usr", "modprobe loop", "date -s 12:00",
    ],
)  # fmt: skip
def test_a_command_cannot_reach_resources_of_the_machine(ws: Walled, attempt: str) -> None:
    # As the user `nobody`, a command may create a namespace: it leads nowhere.
    if os.geteuid() and attempt.startswith("unshare"):
        pytest.skip("a user space of one's own is allowed to those who are not root")

    assert ws.run(attempt).code != 0


@pytest.mark.parametrize("namespaces", [False, True])
def test_a_command_of_root_cannot_write_files_of_the_kernel(
    tmp_path: Path, namespaces: bool
) -> None:
    needs_bubblewrap()
    # Every user of a machine may write to /proc/pressure: that only orders a notice.
    left_out = "-path '/proc/[0-9]*' -prune -o -path /proc/pressure -prune"
    listed = f"find /proc {left_out} -o -type f -perm /222 -print"
    opened = f'for f in $({listed}); do {{ : >>"$f"; }} 2>/dev/null && echo "$f"; done'

    with walled(tmp_path / "ws", user_namespaces=namespaces) as place:
        result = place.run(f"{opened}; {listed} | wc -l")

    assert int(result.text) > 100  # the number alone, and no name before it


def private_directories() -> set[str]:
    """Return the private directories of this process; other tests may run meanwhile."""
    ours = f".{os.getpid()}."
    names = os.listdir("/tmp")
    return {n for n in names if n.startswith("refold-sandbox-") and ours in n}


def test_tmp_is_private_shared_by_commands_and_removed_at_the_end(tmp_path: Path) -> None:
    needs_bubblewrap()
    before = private_directories()
    with walled(tmp_path / "ws") as ws:
        ws.run("echo kept > /tmp/a; mktemp; ls -a /run /var/tmp")
        result = ws.run("cat /tmp/a; echo $TMPDIR; ls /tmp")
        during = private_directories()

    assert result.text.startswith("kept\n/tmp\n")
    assert len(during - before) == 1
    assert not (during - before) & set(os.listdir("/tmp"))


def test_private_directories_of_dead_processes_are_removed(tmp_path: Path) -> None:
    space = os.stat("/proc/self/ns/pid").st_ino
    stray, elsewhere = (
        Path(tempfile.gettempdir(), f"refold-sandbox-{space}.{2**22 + 1}.1.x")
        for space in (space, space - 1)
    )
    stray.mkdir()
    elsewhere.mkdir()

    remove_strays()

    assert (stray.exists(), elsewhere.exists()) == (False, True)
    elsewhere.rmdir()


def test_a_command_can_commit_in_a_linked_worktree(tmp_path: Path) -> None:
    needs_bubblewrap()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path / "main")]
    (tmp_path / "main").mkdir()
    for words in (
        "init -q",
        "commit -q --allow-empty -m first",
        f"worktree add -q {tmp_path}/ws",
    ):
        subprocess.run([*git, *words.split()], check=True)
    before = (tmp_path / "main/.git/config").read_text()

    with walled(tmp_path / "ws") as ws:
        result = ws.run(
            "touch f; git add f; git -c user.name=a -c user.email=a@b commit -qm second; "
            "git log --format=%s; git config core.pager evil; "
            "echo x > ../main/.git/hooks/post-commit; echo x > ../main/file"
        )

    assert "second\nfirst" in result.text
    assert (tmp_path / "main/.git/config").read_text() == before
    assert not (tmp_path / "main/.git/hooks/post-commit").exists()
    assert not (tmp_path / "main/file").exists()


def test_read_only_git_works_in_a_linked_worktree_and_starts_no_program(
    tmp_path: Path,
) -> None:
    needs_bubblewrap()
    main, mark = tmp_path / "main", tmp_path / "ws/ran"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(main)]
    main.mkdir()
    for words in (
        "init -q",
        "commit -q --allow-empty -m first",
        f"worktree add -q {tmp_path}/ws",
        f"config core.fsmonitor {tmp_path}/ws/monitor",
    ):
        subprocess.run([*git, *words.split()], check=True)
    monitor = tmp_path / "ws/monitor"
    monitor.write_text("#!/bin/sh\necho ran >&2\n")
    monitor.chmod(0o755)

    with walled(tmp_path / "ws") as ws:
        result = ws.run("git log --format=%s; git status --short", writes=False)

    assert (result.code, result.text) == (0, "first\n?? monitor\n")
    assert not mark.exists()


def test_the_read_only_profile_refuses_writes_and_writable_paths_permit_them(
    tmp_path: Path, home: Path
) -> None:
    needs_bubblewrap()
    (home / "cache").mkdir()
    with walled(tmp_path / "ws", writable=("~/cache",)) as ws:
        assert ws.run("touch a ~/cache/b").code == 0
    with walled(tmp_path / "ws", profile="read-only", network=True) as ws:
        result = ws.run("touch c")

    assert REFUSED in result.text
    assert (result.looking, result.offline) == (True, False)
    assert (home / "cache/b").exists()


def test_a_read_only_command_finds_no_programs_of_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_bubblewrap()
    tools = tmp_path / "ws/bin"
    tools.mkdir(parents=True)
    for name in ("ls", "mytool"):
        (tools / name).write_text("#!/bin/sh\necho planted\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:.:{os.environ['PATH']}")

    with walled(tmp_path / "ws") as ws:
        looking, working = ws.run("ls; mytool", writes=False), ws.run("mytool")

    assert "planted" not in looking.text
    assert working.text == "planted\n"


def test_a_sandboxed_command_sees_no_key_of_refold(ws: Walled, canary: str) -> None:
    result = ws.run("env; cat /proc/*/environ; set")

    assert canary not in result.text


def test_a_command_runs_after_its_sandbox_was_closed(ws: Walled) -> None:
    ws.sandbox.close()

    assert ws.run("echo a > /tmp/a; cat /tmp/a").text == "a\n"


def test_commands_run_concurrently_in_one_sandbox(ws: Walled) -> None:
    texts = list[str]()

    async def main() -> None:
        async def one(number: int) -> None:
            confines = Confinement(writes=number % 2 == 0, network=number % 3 == 0)
            done = await ws.commands.run(
                f"sleep 0.05; echo {number}",
                cwd=str(ws.root),
                seconds=LONG,
                confines=confines,
            )
            texts.append(done.text)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, number)

    anyio.run(main)

    assert sorted(texts) == [f"{number}\n" for number in range(8)]


def test_sandboxed_commands_leave_no_descriptor_open(tmp_path: Path) -> None:
    needs_bubblewrap()
    with walled(tmp_path / "ws") as ws:
        ws.run("true")
        ws.commands.close()  # from here on no sandbox of a next command holds any
        before = len(os.listdir("/proc/self/fd"))
        for seconds in (LONG, 0.01):
            ws.run("sleep 0.02", seconds=seconds)
        after = len(os.listdir("/proc/self/fd"))

    assert after == before
