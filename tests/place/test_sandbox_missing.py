"""A weak or missing sandbox: refold says so, and enforces what it can."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from refold.errors import ToolFailed
from refold.place import landlock, seatbelt
from refold.place.limits import Limits
from refold.place.sandbox import find_sandbox
from refold.place.sandbox_rules import SandboxConfig, SandboxRules
from tests.place.walled import Walled, needs_bubblewrap, walled


def without_bubblewrap(tmp_path: Path) -> dict[str, str]:
    """Return an environment where bubblewrap says what it says where it may not work."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2; exit 1\n")
    (tools / "bwrap").chmod(0o755)
    return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}


def needs_landlock() -> None:
    if landlock.landlock_version() < 4:
        pytest.skip("this kernel has no Landlock that knows TCP")


def test_a_notice_reports_bubblewrap_that_does_not_work(tmp_path: Path) -> None:
    sandbox = find_sandbox(
        without_bubblewrap(tmp_path), SandboxConfig(roots=(str(tmp_path / "ws"),))
    )

    assert sandbox.kind in ("landlock", "none")
    assert not sandbox.confines
    assert "bubblewrap does not work here (No permissions)" in sandbox.notice
    assert "Install bubblewrap" in sandbox.notice


def test_bubblewrap_is_tried_only_once(tmp_path: Path) -> None:
    environ = without_bubblewrap(tmp_path)
    tried = tmp_path / "tried"
    program = tmp_path / "tools" / "bwrap"
    program.write_text(f"#!/bin/sh\nsleep 0.05; echo once >> {tried}; exit 1\n")
    sandbox = find_sandbox(environ, SandboxConfig(roots=(str(tmp_path / "ws"),)))

    sandbox.begin()

    assert "bubblewrap does not work here" in sandbox.notice
    assert sandbox.kind in ("landlock", "none")
    assert tried.read_text() == "once\n"


def test_bubblewrap_that_works_is_tried_again_only_after_it_changed(tmp_path: Path) -> None:
    environ = without_bubblewrap(tmp_path)
    trials = tmp_path / "trials"
    program = tmp_path / "tools" / "bwrap"
    program.write_text(f"#!/bin/sh\necho once >> {trials}\n")
    config = SandboxConfig(roots=(str(tmp_path / "ws"),))

    kinds = [find_sandbox(environ, config).kind for _ in range(3)]
    os.utime(program, ns=(0, 0))
    kinds.append(find_sandbox(environ, config).kind)

    assert kinds == ["bubblewrap"] * 4
    assert trials.read_text() == "once\n" * 2


def test_a_notice_reports_missing_bubblewrap(tmp_path: Path) -> None:
    sandbox = find_sandbox(
        {"PATH": str(tmp_path)}, SandboxConfig(roots=(str(tmp_path / "ws"),))
    )

    assert "bubblewrap (bwrap) is not installed" in sandbox.notice


def test_a_notice_reports_a_disabled_sandbox(tmp_path: Path) -> None:
    sandbox = find_sandbox(os.environ, SandboxConfig(roots=(str(tmp_path),), profile="off"))

    assert (sandbox.kind, sandbox.confines) == ("off", False)
    assert "The sandbox is off" in sandbox.notice


def test_a_working_sandbox_has_no_notice(tmp_path: Path) -> None:
    needs_bubblewrap()
    sandbox = find_sandbox(os.environ, SandboxConfig(roots=(str(tmp_path / "ws"),)))

    assert (sandbox.kind, sandbox.confines, sandbox.notice) == ("bubblewrap", True, "")


def test_a_command_fails_if_bubblewrap_was_removed_during_the_session(
    tmp_path: Path,
) -> None:
    needs_bubblewrap()
    (tmp_path / "tools").mkdir()
    own = tmp_path / "tools/bwrap"
    own.write_bytes(Path(shutil.which("bwrap") or "").read_bytes())
    own.chmod(0o755)
    with walled(tmp_path / "ws", {**os.environ, "PATH": str(own.parent)}) as ws:
        assert ws.run("echo there").code == 0
        own.unlink()

        with pytest.raises(ToolFailed, match="no longer exists"):
            ws.run("echo gone")


def test_landlock_alone_confines_writes_to_the_workspace(
    tmp_path: Path, home: Path
) -> None:
    needs_landlock()
    with walled(tmp_path / "ws", without_bubblewrap(tmp_path)) as ws:
        result = ws.run(
            f"echo a > a; mkdir d; mv a d; echo t > $TMPDIR/t; echo > /dev/null; "
            f"touch {tmp_path}/x {home}/x /etc/x; ln d/a {tmp_path}/y; rm -r {tmp_path}/tools; "
            f"truncate -s 0 {tmp_path}/tools/bwrap; cat d/a $TMPDIR/t"
        )

    assert result.text.endswith("a\nt\n")
    assert sorted(os.listdir(tmp_path)) == ["tools", "ws"]
    assert (tmp_path / "tools/bwrap").read_text().startswith("#!/bin/sh")
    assert not (home / "x").exists()


def test_landlock_alone_prevents_writes_of_read_only_commands(tmp_path: Path) -> None:
    needs_landlock()
    with walled(tmp_path / "ws", without_bubblewrap(tmp_path)) as ws:
        (ws.root / "a").write_text("as it was")
        ws.run("echo b > a; rm a; mv a b; touch c; mkdir d; echo e >> a", writes=False)

        assert os.listdir(ws.root) == ["a"]
        assert (ws.root / "a").read_text() == "as it was"


def test_landlock_alone_blocks_tcp_and_signals_to_other_processes(tmp_path: Path) -> None:
    needs_landlock()
    with (
        walled(tmp_path / "ws", without_bubblewrap(tmp_path)) as ws,
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(["sleep", "1000"]) as other,
    ):
        attempt = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo reached"
        off, on = ws.run(attempt), ws.run(attempt, network=True)
        ws.run(f"kill -9 {other.pid}")
        alive = other.poll() is None
        other.kill()

    assert ("reached" in off.text, on.text) == (False, "reached\n")
    assert alive or landlock.landlock_version() < 6


def test_guarded_files_created_under_landlock_alone_are_quarantined(tmp_path: Path) -> None:
    needs_landlock()
    with walled(tmp_path / "ws", without_bubblewrap(tmp_path)) as ws:
        result = ws.run("echo x > .env; touch kept")

        assert [one.path for one in result.guarded.undone] == [str(ws.root / ".env")]
        assert os.listdir(ws.root) == ["kept"]


def test_the_seatbelt_profile_contains_all_sandbox_rules() -> None:
    profile = seatbelt.profile(
        SandboxRules(
            private="/p", cwd="/w", covered=("/home/me/.ssh",), unread=('/w/odd"name',),
            roots=("/w",), open=("/w",), shut=("/w/.git/hooks",),
        )
    )  # fmt: skip

    assert profile == (
        "(version 1)\n"
        "(allow default)\n"
        "(deny file-write*)\n"
        '(allow file-write* (literal "/dev/null"))\n'
        '(allow file-write* (literal "/dev/zero"))\n'
        '(allow file-write* (literal "/dev/tty"))\n'
        '(allow file-write* (literal "/dev/dtracehelper"))\n'
        '(allow file-write* (literal "/dev/fd"))\n'
        '(allow file-write* (subpath "/w"))\n'
        '(allow file-write* (subpath "/p"))\n'
        '(deny file-write* (subpath "/w/.git/hooks"))\n'
        '(deny file-read* file-write* (subpath "/home/me/.ssh"))\n'
        '(deny file-read* file-write* (subpath "/w/odd\\"name"))\n'
        "(deny network*)\n"
        "(deny system-socket)\n"
        "(deny signal (target others))\n"
        "(allow signal (target same-sandbox))\n"
    )


AS_NOBODY = """
import os, sys
from pathlib import Path
from tests.place.walled import needs_bubblewrap, walled

needs_bubblewrap()
with walled(Path(sys.argv[1]) / "ws") as ws:
    (ws.root / ".env").write_text("as it was")
    found = ws.run(
        f"echo a > a; echo x > .env; touch {sys.argv[1]}/x; mkdir .vscode; id -u; "
        "kill -9 " + str(os.getppid()) + "; unshare -Ur rm .env; mount -t tmpfs none /mnt; "
        "unshare -Urm sh -c 'umount .env; mount -o remount,rw /; echo x > .env'"
    )
    looked = ws.run("touch b; cat a", writes=False)
    crowd = ws.run(":(){ :|:& };:; sleep 100", seconds=20)
    print(found.text, file=sys.stderr)
    print(sorted(os.listdir(ws.root)), sorted(os.listdir(sys.argv[1])))
    print((ws.root / ".env").read_text(), [Path(one.path).name for one in found.guarded.undone])
    print(looked.text.endswith("a\\n"), bool(crowd.stopped))
"""


@pytest.mark.slow
def test_guarded_paths_are_protected_for_a_user_other_than_root(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can become nobody")
    here = Path(__file__).parents[2]
    place = tmp_path / "nobody"
    place.mkdir()
    os.chown(place, 65534, 65534)
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_mode & 0o005 != 0o005:
            above.chmod(above.stat().st_mode | 0o005)
    closed = tmp_path / "closed"  # as root has it for containers that it runs
    (closed / "mounted").mkdir(parents=True)
    closed.chmod(0o700)
    command_line = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(closed / "mounted"),
             "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable]  # fmt: skip
    environ = {**os.environ, "HOME": str(place), "PYTHONDONTWRITEBYTECODE": "1"}

    done = subprocess.run(
        [*command_line, "-c", AS_NOBODY, str(place)], cwd=here, env=environ, check=False,
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.stdout.splitlines() == [
        "['.env', 'a'] ['ws', 'ws-quarantine']", "as it was ['.vscode']", "True True",
    ], done.stderr  # fmt: skip


def test_a_sandboxed_command_runs_with_the_root_directory_as_workspace() -> None:
    needs_bubblewrap()
    walled_workspace = Walled(
        Path("/"), find_sandbox(os.environ, SandboxConfig(roots=("/",))), Limits()
    )
    try:
        outcome = walled_workspace.run("echo $$ > /proc/self/comm; cat /dev/null; ls -d /proc/[0-9]* | wc -l",
                         writes=False)  # fmt: skip
    finally:
        walled_workspace.commands.close()

    assert int(outcome.text.splitlines()[-1]) < 10


def test_a_notice_reports_a_sandbox_that_permits_namespaces() -> None:
    needs_bubblewrap()
    config = SandboxConfig(roots=("/",), user_namespaces=True)

    sandbox = find_sandbox(os.environ, config)

    assert "sandbox.user_namespaces is true" in sandbox.notice
    assert sandbox.confines
