"""`--clone`: a session in a fresh clone, and its result. No credential gets there."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from refold.cli.main import main
from tests.journal_files import find_journals

pytestmark = pytest.mark.slow  # git is a program, and each start makes a clone

PASSWORD = "hunter2-of-this-machine"


@pytest.fixture
def source(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a repository, with the tests in another directory, and nothing on standard
    input.
    """
    here, source = tmp_path / "here", tmp_path / "app"
    here.mkdir()
    monkeypatch.chdir(here)
    (home / ".gitconfig").write_text("[user]\nname = n\nemail = n@example.org\n")
    git(tmp_path, "init", "-q", "-b", "main", str(source))
    (source / "app.py").write_text('print("howdy")\n')
    git(source, "add", ".")
    git(source, "commit", "-qm", "Greet")
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield source


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def write_script(path: Path, *commands: str) -> str:
    steps: list[dict[str, object]] = [
        {"calls": [{"tool": "bash", "arguments": {"command": command}}]}
        for command in commands
    ]
    path.write_text(
        "".join(f"{json.dumps(step)}\n" for step in (*steps, {"text": "Done."}))
    )
    return str(path)


def clones(home: Path) -> Path:
    return home / "refold" / "clones"


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_session_in_a_clone_leaves_a_branch_a_patch_and_a_description(
    place: str, source: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "place").mkdir()
    clones(home).joinpath("app-of-a-killed-start/.git").mkdir(parents=True)
    address = f'cmd:"env XDG_DATA_HOME={tmp_path / "data"} sh # {tmp_path / "place"}"'
    place_flags = [] if place == "here" else ["--workspace", address]
    script = write_script(
        tmp_path / "script",
        "cat made-by-setup",
        "sed -i s/howdy/hello/ app.py && git commit -qam 'Say hello'",
        "printf 'new\\0' > new.bin",
    )

    code = main(
        [
            "--clone", f"{source}@main", *place_flags, "--setup", "echo once >> made-by-setup",
            "-p", "Be friendly", "--yolo", "--script", script,
        ]
    )  # fmt: skip

    out, err = capsys.readouterr()
    (patch,), (text,) = clones(home).glob("*.patch"), clones(home).glob("*.md")
    (clone,) = (clones(home) if place == "here" else tmp_path / "place").glob("app-*/")
    assert (code, out) == (0, "Done.\n")
    assert f"on the branch refold/{clone.name}; nothing was pushed" in err
    assert str(patch) in err
    assert str(text) in err
    assert (clone / "made-by-setup").read_text() == "once\n"
    assert git(clone, "log", "--format=%s") == "Say hello\nGreet"
    assert git(source, "log", "--format=%s", "--all") == "Greet"
    assert text.read_text().startswith("Say hello\n\n- Say hello\n\nBase: ")
    git(source, "apply", str(patch))
    assert git(source, "status", "--short") == "M app.py\n?? new.bin"
    assert (source / "new.bin").read_bytes() == b"new\0"


def test_a_shallow_repository_is_cloned_as_far_as_its_history_goes(
    source: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for subject in ("Two", "Three"):
        git(source, "commit", "-q", "--allow-empty", "-m", subject)
    git(tmp_path, "clone", "-q", "--depth", "2", source.as_uri(), "shallow")
    script = write_script(tmp_path / "script", "echo >> app.py && git commit -qam Four")
    shallow = str(tmp_path / "shallow")

    code = main(["--clone", shallow, "-p", "Go on", "--yolo", "--script", script])

    (clone,) = clones(home).glob("shallow-*/")
    assert code == 0, capsys.readouterr().err
    assert git(clone, "log", "--format=%s") == "Four\nThree\nTwo"
    assert git(clone, "fsck") == ""


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_clone_without_changes_is_removed(
    place: str, source: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "place").mkdir()
    address = f'cmd:"env XDG_DATA_HOME={tmp_path / "data"} sh # {tmp_path / "place"}"'
    place_flags = [] if place == "here" else ["--workspace", address]
    script = write_script(tmp_path / "script", "cat app.py")

    code = main(
        ["--clone", str(source), *place_flags, "-p", "Look", "--yolo", "--script", script]
    )

    assert code == 0
    assert "nothing was changed, so the clone" in capsys.readouterr().err
    assert list(clones(home).iterdir()) == []
    assert list((tmp_path / "place").iterdir()) == []


def test_a_killed_session_in_a_clone_is_resumed_and_its_work_reported(
    source: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_script(tmp_path / "one", "echo kept > kept.txt; sleep 60")
    two = write_script(tmp_path / "two", "echo more > more.txt")
    arguments = ["--clone", str(source), "-p", "Begin", "--yolo", "--script", one]
    with subprocess.Popen(
        [sys.executable, "-m", "refold", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as killed:  # fmt: skip
        while not list(clones(home).glob("*/kept.txt")):
            with pytest.raises(subprocess.TimeoutExpired):  # it has not ended
                killed.wait(0.05)
        os.kill(killed.pid, signal.SIGKILL)
    (journal,) = find_journals(home)

    resumed = ["-r", journal.parent.name, "-p", "Go on", "--yolo", "--script", two]
    code = main(resumed)

    err = capsys.readouterr().err
    (patch,) = clones(home).glob("*.patch")
    assert code == 0, err
    assert str(patch) in err
    assert "+kept" in patch.read_text()
    assert "+more" in patch.read_text()


class _WithPassword(SimpleHTTPRequestHandler):
    """The files of a directory, for who has the password."""

    def do_GET(self) -> None:
        wanted = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
        if self.headers["Authorization"] == f"Basic {wanted}":
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_git_credential_is_used_on_this_machine_and_never_enters_the_clone(
    source: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "place").mkdir()
    bare = tmp_path / "served" / "app.git"
    git(tmp_path, "clone", "-q", "--bare", str(source), str(bare))
    git(bare, "update-server-info")
    helper = f'"!f() {{ echo username=me; echo password={PASSWORD}; }}; f"'
    with open(home / ".gitconfig", "a", encoding="utf-8") as config:
        config.write(f"[credential]\nhelper = {helper}\n")
    serve = partial(_WithPassword, directory=str(bare.parent))
    search = f"env; cat /proc/*/environ /proc/*/cmdline; grep -r {PASSWORD[:4]} . ~/.refold-place"
    script = write_script(tmp_path / "script", f"({search}) > seen.txt 2>&1; true")
    address = f'cmd:"env HOME={tmp_path} sh # {tmp_path / "place"}"'

    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/app.git"
        code = main(
            [
                "--clone",
                url,
                "--workspace",
                address,
                "-p",
                "Look",
                "--yolo",
                "--script",
                script,
            ]
        )
        server.shutdown()

    (clone,) = (tmp_path / "place").glob("app-*")
    assert code == 0, capsys.readouterr().err
    assert git(clone, "remote", "get-url", "origin") == url
    assert (clone / "app.py").exists()
    texts = [path.read_bytes() for path in clone.rglob("*") if path.is_file()]
    stored = [path.read_bytes() for path in (home / "refold").rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in text for text in (*texts, *stored))


def test_hooks_of_a_repository_do_not_run_and_its_submodules_are_not_fetched(
    source: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (
        "post-checkout",
        "post-upload-pack",
        "reference-transaction",
        "pre-commit",
    ):
        hook = source / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    git(source, "config", "uploadpack.packObjectsHook", f"touch {tmp_path}/ran; false")
    evil = (
        '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch% /tmp/ran\n\tupdate = !id\n'
    )
    (source / ".gitmodules").write_text(evil)
    git(source, "add", ".gitmodules")
    head = git(source, "rev-parse", "HEAD")
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{head},x")
    git(source, "commit", "-qnm", "Evil", "--no-verify")
    (tmp_path / "ran").unlink(missing_ok=True)  # our own commit was not without all
    script = write_script(tmp_path / "script")

    code = main(["--clone", f"file://{source}", "-p", "Look", "--script", script])

    err = capsys.readouterr().err
    assert code == 0, err
    assert "has submodules, which are not cloned" in err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--clone", "ext::sh", "-p", "x"], "the part before :: names a program"),
        (["--clone", "/srv/app", "-c", "-p", "x"], "--clone starts a new session"),
        (["--clone", "/srv/app", "-w", "x", "-p", "x"], "leave --worktree out"),
        (["--setup", "make", "-p", "x"], "--setup is for a clone: add --clone URL"),
        (["--clone", "/nonexistent/app", "-p", "x"], "--clone '/nonexistent/app' failed: "),
    ],
)
def test_an_impossible_clone_is_refused_with_one_error_and_leaves_no_directory(
    arguments: list[str], error: str, source: Path, home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    code = main(arguments)

    assert code != 0
    assert error in capsys.readouterr().err
    assert not clones(home).exists() or list(clones(home).iterdir()) == []


def test_a_failed_setup_command_ends_the_start_and_leaves_no_clone(
    source: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["--clone", str(source), "--setup", "echo no such thing; exit 7", "-p", "x"]
    )

    assert code != 0
    assert "ended with exit code 7: no such thing" in capsys.readouterr().err
    assert list(clones(home).iterdir()) == []
