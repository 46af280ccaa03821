"""`refold storage` shows the size of refold's files, and `clean` deletes what is old and unused."""

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from refold.app.storage_quota import quota_notice, start_measuring
from refold.cli.main import main
from refold.config.paths import paths
from refold.journal.events.kinds import Said, SessionStarted
from refold.journal.journal_directory import JournalDirectory
from refold.place.checkpoints import Checkpoints
from refold.place.snapshot_repository import snapshot_directory
from refold.session.recorder import Recorder

CAPFD = pytest.CaptureFixture[str]
OLD, NEW, CHILD = "20250101-000000-aaaa", "20260101-000000-bbbb", "/child-1"
DAY_SECONDS = 86_400


@pytest.fixture(autouse=True)
def project_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    monkeypatch.chdir(folder)
    return folder


def home() -> JournalDirectory:
    return JournalDirectory(paths(os.environ).data / "sessions")


def store_session(id_: str, directory: Path, days: float) -> Path:
    """Return a session with a checkpoint of `directory`, last written `days` ago."""

    async def write() -> None:
        record = Recorder(home().store(id_))
        await record.open()
        await record(SessionStarted(str(directory)), Said("mend the roof"))
        await record.close()
        await Checkpoints(
            [directory], paths(os.environ).checkpoints, os.environ, id_
        ).take()

    anyio.run(write)
    age(home().path(id_), days)
    return home().path(id_)


def age(place: Path, days: float) -> Path:
    modified_at = time.time() - days * DAY_SECONDS
    for path in (*place.rglob("*"), place):
        os.utime(path, (modified_at, modified_at))
    return place


def repository(directory: Path) -> Path:
    return snapshot_directory(paths(os.environ).checkpoints, os.path.realpath(directory))


def names() -> list[str]:
    return sorted(os.listdir(home().root))


def storage(capfd: CAPFD, *text: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main(["storage", *text])
    out, err = capfd.readouterr()
    return code, out, err


def documents(capfd: CAPFD, *text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in storage(capfd, *text)[1].splitlines()]


def clean(capfd: CAPFD, *text: str) -> tuple[int, str, str]:
    return storage(capfd, "clean", "--older-than", "90d", *text)


def test_every_file_of_real_sessions_has_a_storage_kind(
    capfd: CAPFD, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))

    def at_once(*_: object) -> tuple[list[object], list[object], list[object]]:
        return [sys.stdin], [], []

    monkeypatch.setattr("select.select", at_once)
    Path("../script.json").write_bytes(msgspec.json.encode({"text": "Done."}))
    assert main(["-p", "mend the roof", "--script", "../script.json"]) == 0
    main(["config", "set", "titles", "false"])
    main(["sessions", "list"])

    kinds = {row["kind"]: row for row in documents(capfd, "--json")}

    assert {"journals", "settings", "index"} <= kinds.keys()
    assert "other" not in kinds
    assert kinds["journals"]["bytes"] > 0


def test_storage_shows_the_size_and_age_of_each_kind_of_file(
    capfd: CAPFD, project_directory: Path
) -> None:
    store_session(OLD, project_directory, 100)

    code, out, err = storage(capfd)

    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert re.split(r"  +", head.strip()) == [
        "files", "size", "over 7 days", "over 30 days", "over 90 days", "removed by",
    ]  # fmt: skip
    (journals,) = [row for row in rows if row.startswith("journals")]
    assert re.fullmatch(
        r"journals +\d+  +([\d.]+ kB)(  +\1){3}  refold storage clean", journals
    )
    assert rows[-1].startswith("total")


def test_clean_deletes_old_sessions_with_their_checkpoints(
    capfd: CAPFD, project_directory: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    store_session(OLD, other, 100)
    store_session(NEW, project_directory, 80)
    for directory in (other, project_directory):
        age(repository(directory), 100)

    code, out, _ = clean(capfd, "--yes")

    assert (code, names()) == (0, [NEW])
    assert not repository(other).exists()
    assert repository(project_directory).exists()
    assert re.search(
        r"Deleted: 1 session, 1 directory of no session, 0 cache files, [\d.]+ kB\.", out
    )
    assert [card.id for card in home().catalogue().cards()] == [NEW]


def test_clean_keeps_a_repository_that_another_session_uses(
    capfd: CAPFD, project_directory: Path
) -> None:
    store_session(OLD, project_directory, 100)
    store_session(NEW, project_directory, 1)
    age(repository(project_directory), 100)

    clean(capfd, "--yes")

    assert os.listdir(repository(project_directory) / "sessions") == [NEW]
    assert (repository(project_directory) / "objects").is_dir()


def test_clean_dry_run_prints_what_would_be_deleted_and_deletes_nothing(
    capfd: CAPFD, project_directory: Path
) -> None:
    store_session(OLD, project_directory, 100)
    age(repository(project_directory), 100)

    code, out, _ = clean(capfd, "--dry-run")
    rows = documents(capfd, "clean", "--older-than", "90d", "--dry-run", "--json")

    assert (code, names()) == (0, [OLD])
    assert repository(project_directory).is_dir()
    assert [line.split()[-1] for line in out.splitlines()] == [
        OLD,
        str(repository(project_directory)),
    ]
    assert [row.get("session", row.get("leftover")) for row in rows] == [
        OLD, str(repository(project_directory)),
    ]  # fmt: skip


def test_clean_without_a_terminal_needs_yes(capfd: CAPFD, project_directory: Path) -> None:
    store_session(OLD, project_directory, 100)

    code, _, err = clean(capfd)

    assert (code, names()) == (1, [OLD])
    assert "There is no terminal to answer at: repeat the command with --yes" in err


@asynccontextmanager
async def hold_open(id_: str) -> AsyncGenerator[None]:
    store = home().store(id_)
    await store.lease()
    age(home().path(id_), 100)
    try:
        yield
    finally:
        await store.release()


@pytest.mark.parametrize("open_one", ["", CHILD])
def test_clean_keeps_a_session_that_a_process_has_open(
    capfd: CAPFD, project_directory: Path, open_one: str
) -> None:
    store_session(OLD, project_directory, 100)
    store_session(f"{OLD}{CHILD}", project_directory, 100)
    age(home().path(OLD), 100)
    age(repository(project_directory), 100)

    async def clean_while_open() -> tuple[int, str, str]:
        async with hold_open(f"{OLD}{open_one}"):
            return await anyio.to_thread.run_sync(lambda: clean(capfd, "--yes"))

    code, _, err = anyio.run(clean_while_open)

    assert (code, names()) == (0, [OLD])
    assert (f"{OLD} is open in another process and stays" in err) is not bool(open_one)
    assert (repository(project_directory) / "sessions" / OLD).is_dir()


def test_clean_keeps_an_old_session_with_a_new_subagent(
    capfd: CAPFD, project_directory: Path
) -> None:
    store_session(OLD, project_directory, 100)
    store_session(f"{OLD}{CHILD}", project_directory, 1)
    journal = home().path(OLD) / "events.jsonl"
    os.utime(journal, (1.0, 1.0))

    _, out, err = clean(capfd, "--yes")

    assert (names(), out) == ([OLD], "")
    assert err == "there is nothing to delete that is so old\n"


def test_blobs_and_checkpoints_without_a_session_are_listed_and_cleaned(
    capfd: CAPFD, project_directory: Path, tmp_path: Path
) -> None:
    store_session(NEW, project_directory, 1)
    lost, path = store_session(OLD, tmp_path, 100), tmp_path / "gone"
    path.mkdir()
    anyio.run(Checkpoints([path], paths(os.environ).checkpoints, os.environ, "x").take)
    (lost / "blobs").mkdir()
    (lost / "blobs" / ("a" * 64)).write_bytes(b"x" * 9000)
    (lost / "events.jsonl").unlink()
    left = home().root / f".fork-{2**22 + 1}-{NEW}"
    left.mkdir()
    (left / "events.jsonl").write_text("")
    places = [lost, left, repository(tmp_path), repository(path)]

    _, out, _ = storage(capfd)
    leftovers = [row["leftover"] for row in documents(capfd, "--json") if "leftover" in row]
    clean(capfd, "--yes")
    too_new = [place for place in places if place.exists()]
    for place in places:
        age(place, 100) if place.exists() else None
    clean(capfd, "--yes")

    assert "4 directories of no session, " in out
    assert sorted(leftovers) == sorted(map(str, places))
    assert too_new == [lost, left, repository(tmp_path), repository(path)]
    assert [place for place in places if place.exists()] == []
    assert (names(), repository(project_directory).is_dir()) == ([NEW], True)


def test_clean_keeps_all_repositories_while_a_journal_cannot_be_read(
    capfd: CAPFD, project_directory: Path, tmp_path: Path
) -> None:
    store_session(OLD, project_directory, 1)
    (home().path(OLD) / "events.jsonl").write_bytes(b"?\n")
    anyio.run(Checkpoints([tmp_path], paths(os.environ).checkpoints, os.environ, "x").take)
    age(repository(tmp_path), 100)

    clean(capfd, "--yes")

    assert repository(tmp_path).is_dir()


def test_clean_keeps_checkpoints_that_a_process_is_writing(
    capfd: CAPFD, project_directory: Path
) -> None:
    anyio.run(
        Checkpoints(
            [project_directory], paths(os.environ).checkpoints, os.environ, "x"
        ).take
    )
    age(repository(project_directory), 100)
    program = (
        "import fcntl, sys\n"
        f"lock = open({str(repository(project_directory) / 'sessions/x/lock')!r})\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        clean(capfd, "--yes")
        while_locked = repository(project_directory).is_dir()
        process.communicate(b"")
    clean(capfd, "--yes")

    assert (while_locked, repository(project_directory).exists()) == (True, False)


def test_clean_deletes_old_files_of_caches_only(capfd: CAPFD) -> None:
    root = paths(os.environ).data
    for name in ("memo/p/old", "memo/p/new", "projects/p/memory.md", "quarantine/q"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    age(root, 100)
    os.utime(root / "memo/p/new")

    code, out, _ = clean(capfd, "--yes")

    assert (code, (root / "memo/p/old").exists()) == (0, False)
    for name in ("memo/p/new", "projects/p/memory.md", "quarantine/q"):
        assert (root / name).exists()
    assert "1 cache file," in out
    assert clean(capfd, "--yes")[2] == "there is nothing to delete that is so old\n"


def test_clean_deletes_only_model_lists_from_the_models_directory(
    capfd: CAPFD, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`REFOLD_HOME` has the lists of providers and the models in one directory."""
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "refold"))
    models = paths(os.environ).data / "models"
    models.mkdir(parents=True)
    for name in ("small.gguf", "small.safetensors", "openai.json"):
        (models / name).write_text("x")
    age(models, 100)

    main(["storage", "clean", "--older-than", "30d", "--yes"])

    assert "1 cache file," in capfd.readouterr().out
    assert sorted(os.listdir(models)) == ["small.gguf", "small.safetensors"]


@pytest.mark.parametrize("text", ["90", "d", "0d", "-1d", "1h", "１d", ""])
def test_clean_refuses_an_invalid_age(capfd: CAPFD, text: str) -> None:
    code, _, err = storage(capfd, "clean", f"--older-than={text}", "--yes")

    assert code == 1
    assert f"{text!r} is not an age: give days, weeks or years, such as 90d" in err


def clean_until_deletion() -> int:
    """Clean in a process that is killed when it begins to delete a directory."""
    program = (
        "import os, shutil, signal\n"
        "shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from refold.cli.main import main\n"
        "main(['storage', 'clean', '--older-than', '90d', '--yes'])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program], check=False, timeout=60
    ).returncode


def test_a_killed_clean_leaves_a_renamed_repository_that_the_next_clean_deletes(
    capfd: CAPFD, project_directory: Path
) -> None:
    anyio.run(
        Checkpoints(
            [project_directory], paths(os.environ).checkpoints, os.environ, "x"
        ).take
    )
    age(repository(project_directory), 100)

    code = clean_until_deletion()
    (left,) = paths(os.environ).checkpoints.iterdir()
    anyio.run(
        Checkpoints(
            [project_directory], paths(os.environ).checkpoints, os.environ, "y"
        ).take
    )
    age(left, 100)
    clean(capfd, "--yes")

    assert code == -9
    assert left.name.startswith(".deleted-")
    assert not left.exists()
    assert (repository(project_directory) / "sessions/y").is_dir()


def test_a_killed_clean_leaves_the_other_sessions_readable(
    capfd: CAPFD, project_directory: Path
) -> None:
    """The cleanup is killed after a directory was renamed and before anything in it is
    deleted.
    """
    store_session(OLD, project_directory, 100)
    store_session(NEW, project_directory, 1)
    code = clean_until_deletion()
    (left,) = [name for name in names() if name != NEW]
    ids = [card.id for card in home().catalogue().cards()]
    age(home().root / left, 100)
    clean(capfd, "--yes")

    assert code == -9
    assert left.startswith(".deleted-")
    assert ids == [NEW]
    assert names() == [NEW]
    assert not home().check(NEW).damages


def test_the_storage_quota_warns_by_the_last_measured_size(capfd: CAPFD) -> None:
    here = paths(os.environ)
    before = quota_notice(here, 0.000001)
    (here.data / "memo").mkdir(parents=True)
    (here.data / "memo/a").write_bytes(b"x" * 20_000)
    storage(capfd)

    assert before == ""
    assert quota_notice(here, 0.000001).startswith("refold's files take 0.0 GB, more than")
    assert quota_notice(here, 1.0) == ""
    assert quota_notice(here, 0.0) == ""
    here.measured_size.write_text("damaged")
    assert quota_notice(here, 0.000001) == ""


def test_storage_is_measured_in_the_background_at_most_once_a_day() -> None:
    here = paths(os.environ)
    environ = {k: v for k, v in os.environ.items() if k != "REFOLD_NO_BACKGROUND"}

    start_measuring(here, 10.0, {**environ, "REFOLD_NO_BACKGROUND": "1"})
    start_measuring(here, 0.0, environ)
    assert not here.measured_size.exists()
    start_measuring(here, 10.0, environ)
    deadline = time.monotonic() + 30
    while not here.measured_size.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    measured = here.measured_size.stat().st_mtime_ns
    start_measuring(here, 10.0, environ)

    assert here.measured_size.stat().st_mtime_ns == measured
