"""Writing many files: all of them or none, and a report if neither was possible."""

import errno
import os
import stat
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from refold.errors import ToolFailed
from refold.place.openat import Opening
from refold.place.port import Files, FileWrite
from tests.place.ports import Port, needs_this_machine, open_files

pytestmark = pytest.mark.usefixtures("port")

NOTHING = ""


@pytest.fixture
def files(tmp_path: Path, opening: Opening) -> Files:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"{name} before")
    return open_files(tmp_path, opening=opening)


def write_of(
    files: Files, name: str, content: bytes | None, before: str | None = None
) -> FileWrite:
    """To this content from what the fixture wrote, or from `before`."""
    was = f"{name} before" if before is None else before
    return FileWrite(
        files.real(name), content, sha256(was.encode()).hexdigest() if was else NOTHING
    )


def tree(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text() if path.is_file() else "/"
        for path in sorted(directory.rglob("*"))
    }


BEFORE = {"a": "a before", "b": "b before", "c": "c before"}


def test_put_all_changes_creates_and_removes_files_together(
    files: Files, tmp_path: Path
) -> None:
    files.put_all(
        [
            write_of(files, "a", b"new"),
            write_of(files, "b", None),
            write_of(files, "d/e/f", b"made", NOTHING),
        ]
    )

    assert tree(tmp_path) == {
        "a": "new", "c": "c before", "d": "/", "d/e": "/", "d/e/f": "made",
    }  # fmt: skip


def test_a_file_is_removed_only_with_its_expected_content(
    files: Files, tmp_path: Path
) -> None:
    with pytest.raises(ToolFailed, match="a changed in the meantime"):
        files.remove(files.real("a"), expect=sha256(b"other").hexdigest())
    files.remove(files.real("b"), expect=sha256(b"b before").hexdigest())

    assert tree(tmp_path) == {"a": "a before", "c": "c before"}


def test_removing_a_missing_file_fails_only_if_content_was_expected(
    files: Files,
) -> None:
    files.remove(files.real("nothing"), expect=NOTHING)

    with pytest.raises(ToolFailed, match="went away"):
        files.remove(files.real("nothing"), expect="0")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (("b", b"x", "other"), "b changed in the meantime"),
        (("b", b"x", NOTHING), "b came up in the meantime"),
        (("nothing", b"x", "other"), "nothing went away in the meantime"),
        (("nothing", None, "other"), "nothing went away in the meantime"),
        (("folder", None, NOTHING), "folder is a directory"),
        (("folder", b"x", NOTHING), "folder is a directory"),
        (("pipe", None, NOTHING), "pipe is a device, pipe or socket"),
        (("a/below", b"x", NOTHING), "Cannot write a/below: a part of the path"),
        (("new/" + "n" * 300, b"x", NOTHING), "the name is too long"),
        (("a", b"y", "a before"), "a is named twice"),
        (("./folder/../a", b"y", "a before"), "a is named twice"),
    ],
)
def test_one_impossible_write_prevents_all_others(
    files: Files, tmp_path: Path, bad: tuple[str, bytes | None, str], message: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = {*os.listdir(tmp_path)}
    puts = [
        write_of(files, "a", b"x"),
        write_of(files, "m/a/d/e", b"x", NOTHING),
        write_of(files, *bad),
    ]

    for order in (puts, puts[::-1]):
        with pytest.raises(ToolFailed, match=message):
            files.put_all(order)
        assert {*os.listdir(tmp_path)} == before
        assert (tmp_path / "a").read_text() == "a before"


class Failing:
    """A system call that fails for this file."""

    def __init__(self, real: object, name: str, error: int) -> None:
        self.real, self.name, self.error = real, name, error

    def __call__(self, old: str, new: str, **options: object) -> None:
        if new == self.name and old.startswith(".refold"):
            raise OSError(self.error, os.strerror(self.error))
        assert callable(self.real)
        self.real(old, new, **options)


@pytest.fixture
def broken_disk(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails at the moment that `c` is to take its new content."""
    if not port.argv:
        monkeypatch.setattr(os, "rename", Failing(os.rename, "c", errno.EIO))


@pytest.mark.usefixtures("broken_disk")
def test_writes_before_a_disk_error_are_rolled_back(files: Files, tmp_path: Path) -> None:
    needs_this_machine("its disk fails here")
    st_ino = (tmp_path / "a").stat().st_ino
    puts = [
        write_of(files, "a", b"x"),
        write_of(files, "b", None),
        write_of(files, "d/e", b"new", NOTHING),
        write_of(files, "c", b"y"),
    ]

    with pytest.raises(
        ToolFailed, match=r"^Cannot write c: .* error\. Nothing was changed\.$"
    ):
        files.put_all(puts)

    assert tree(tmp_path) == BEFORE
    assert (tmp_path / "a").stat().st_ino == st_ino
    assert (tmp_path / "a").stat().st_nlink == 1


def test_writes_are_rolled_back_without_hard_links_too(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_this_machine("its disk fails here")

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    puts = [
        write_of(files, "a", b"x"),
        write_of(files, "b", None),
        write_of(files, "d", b"n", NOTHING),
    ]
    with monkeypatch.context() as failing:
        failing.setattr(os, "rename", Failing(os.rename, "c", errno.EIO))
        with pytest.raises(ToolFailed, match="Nothing was changed"):
            files.put_all([*puts, write_of(files, "c", b"y")])
    assert tree(tmp_path) == BEFORE

    files.put_all([*puts, write_of(files, "c", b"y")])

    assert tree(tmp_path) == {"a": "x", "c": "y", "d": "n"}


def test_a_write_that_cannot_be_rolled_back_is_named_with_its_backup(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program writes to `a` between our change of it and the failure."""
    needs_this_machine("its disk fails here")
    rename = os.rename

    def interfering(old: str, new: str, **options: int) -> None:
        if new == "c" and old.startswith(".refold"):
            (tmp_path / "theirs").write_text("theirs")
            (tmp_path / "theirs").replace(tmp_path / "a")
            raise OSError(errno.EIO, "no")
        rename(old, new, **options)

    monkeypatch.setattr(os, "rename", interfering)

    with pytest.raises(ToolFailed) as failure:
        files.put_all(
            [
                write_of(files, "a", b"x"),
                write_of(files, "b", None),
                write_of(files, "c", b"y"),
            ]
        )

    backup = next(name for name in os.listdir(tmp_path) if name.startswith(".refold"))
    assert str(failure.value).endswith(
        f"Not everything could be restored: a (what it held is in {backup} beside it)."
    )
    assert tree(tmp_path) == {
        backup: "a before", "a": "theirs", "b": "b before", "c": "c before",
    }  # fmt: skip


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_written_file_gets_the_mode_of_another_file_or_the_executable_bit(
    files: Files, tmp_path: Path
) -> None:
    (tmp_path / "a").chmod(0o700)
    (tmp_path / "b").chmod(0o750)
    (tmp_path / "c").chmod(0o640)

    files.put_all(
        [
            FileWrite(files.real("like"), b"x", NOTHING, like=files.real("a")),
            FileWrite(files.real("run"), b"x", NOTHING, executable=True),
            FileWrite(
                files.real("b"), b"x", write_of(files, "b", b"").expect, executable=False
            ),
            FileWrite(
                files.real("c"), b"x", write_of(files, "c", b"").expect, executable=True
            ),
        ]
    )

    new = 0o666 & ~umask()
    assert [mode(tmp_path / name) for name in ("like", "run", "b", "c")] == [
        0o700, new | new >> 2 & 0o111, 0o640, 0o750,
    ]  # fmt: skip


def test_a_write_drops_the_setuid_and_setgid_bits(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").chmod(0o6755)

    files.put_all([write_of(files, "a", b"x")])

    assert mode(tmp_path / "a") == 0o755


def test_a_hard_link_can_be_removed_and_not_written(files: Files, tmp_path: Path) -> None:
    os.link(tmp_path / "a", tmp_path / "a2")

    with pytest.raises(ToolFailed, match="2 names"):
        files.put_all([write_of(files, "b", b"x"), write_of(files, "a", b"x")])
    files.put_all([write_of(files, "a", None)])

    assert tree(tmp_path) == {"a2": "a before", "b": "b before", "c": "c before"}


def test_writing_many_files_needs_few_descriptors(files: Files, tmp_path: Path) -> None:
    needs_this_machine("it counts the descriptors of this process")
    puts = [write_of(files, f"d{n}/f", b"x", NOTHING) for n in range(100)]

    code = run_in_fork(lambda: write_all_with_few_descriptors(files, puts))

    assert code == 0
    assert len(list(tmp_path.glob("d*/f"))) == 100


def write_all_with_few_descriptors(files: Files, puts: list[FileWrite]) -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 40, hard))
    files.put_all(puts)


def run_in_fork(function: Callable[[], None]) -> int:
    """Do this in a process in which no thread of an earlier test runs. Its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        pid = os.fork()
    if not pid:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def umask() -> int:
    result = os.umask(0)
    os.umask(result)
    return result
