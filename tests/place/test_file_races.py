"""Files stay where they were judged to be, whatever happens to names meanwhile."""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from refold.errors import ToolFailed
from refold.place.files import DiskFiles
from refold.place.openat import FOLDER_FLAGS, Opening, open_beneath, open_by_walking
from refold.place.port import FileWrite, Real

NOTHING = ""


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "out").mkdir()
    return tmp_path / "ws"


@pytest.fixture
def outside(inside: Path) -> Path:
    return inside.parent / "out"


@pytest.fixture
def files(inside: Path, opening: Opening) -> DiskFiles:
    return DiskFiles(inside, opening=opening)


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def file_operations(files: DiskFiles, real: Real) -> list[Callable[[], object]]:
    return [
        lambda: files.read(real),
        lambda: files.items(real),
        lambda: files.write(real, b"x", expect=NOTHING),
        lambda: files.write(real, b"x", expect=digest(b"secret")),
        lambda: files.remove(real, expect=digest(b"secret")),
        lambda: files.put_all(
            [FileWrite(real, b"x", NOTHING), FileWrite(Real(f"{real}2"), b"", NOTHING)]
        ),
    ]


@pytest.mark.parametrize("swapped", ["d", "d/e", "d/e/f"])
def test_a_path_that_became_a_link_after_its_check_is_refused(
    files: DiskFiles, inside: Path, outside: Path, swapped: str
) -> None:
    """The link may stand at any depth, and at the end."""
    (inside / "d/e").mkdir(parents=True)
    (inside / "d/e/f").write_bytes(b"mine")
    for name in ("f", "e/f", "file"):
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_bytes(b"secret")
    real = files.real("d/e/f")
    (inside / swapped).rename(inside / "away")
    (inside / swapped).symlink_to(outside / "file" if swapped == "d/e/f" else outside)
    before = tree(outside)

    for do in file_operations(files, real):
        with pytest.raises(ToolFailed):
            do()

    assert tree(outside) == before


def test_a_path_is_refused_after_the_workspace_became_a_link(
    files: DiskFiles, inside: Path, outside: Path
) -> None:
    (inside / "f").write_bytes(b"mine")
    (outside / "f").write_bytes(b"secret")
    real = files.real("f")
    inside.rename(inside.with_name("ws2"))
    inside.symlink_to(outside)

    for do in file_operations(files, real):
        with pytest.raises(ToolFailed):
            do()

    assert tree(outside) == {"f": b"secret"}


def test_a_write_does_not_recreate_a_removed_workspace(
    files: DiskFiles, inside: Path
) -> None:
    inside.rmdir()

    with pytest.raises(ToolFailed, match="Cannot write d/f: there is no such file"):
        files.write(files.real("d/f"), b"x", expect=NOTHING)

    assert not inside.exists()


@pytest.mark.parametrize("path", ["pkg/new", "pkg/sub/deep", "dangling", "up/out/x"])
def test_a_path_that_leads_outside_is_refused_to_a_call_allowed_inside(
    files: DiskFiles, inside: Path, outside: Path, path: str
) -> None:
    (inside / "pkg").symlink_to(outside)
    (inside / "dangling").symlink_to(outside / "new")
    (inside / "up").symlink_to("pkg/..")

    assert (files.outside(path) or "").startswith(str(outside.parent))
    for judged, why in (
        ((), "outside of"),
        ((str(inside / path),), "which is not what was allowed"),
    ):
        with pytest.raises(ToolFailed, match=why):
            files.only(judged).real(path)
    assert tree(outside) == {}


def test_a_call_reaches_only_the_paths_that_were_allowed(
    files: DiskFiles, inside: Path, outside: Path
) -> None:
    allowed = files.only([str(inside / "a"), str(outside / "b")])

    assert allowed.real("a") == str(inside / "a")
    assert allowed.real("../out/b") == str(outside / "b")
    for path in ("c", ".", "a/b", "../out", "../out/b2"):
        with pytest.raises(ToolFailed):
            allowed.real(path)
    assert files.only([]).real("c/d") == str(inside / "c/d")


def test_the_error_for_a_path_outside_the_workspace_names_the_path(
    files: DiskFiles, inside: Path
) -> None:
    with pytest.raises(
        ToolFailed, match=f"leads to .*/out/x, outside of {inside}"
    ) as error:
        files.only([]).real("../out/x")

    assert "changed" not in str(error.value)


@pytest.mark.parametrize(
    "path",
    [
        "../ws-evil/f",
        "{inside}-evil/f",
        "/proc/self/root{inside}/../out/f",
        "/proc/self/cwd/../../../../../../../../../etc/passwd",
        "/proc/self/root/etc/passwd",
        "/dev/fd/0",
        "link/../../out/f",
        "a/../../out/f",
        "..",
        "WS/../../WS/f",
    ],
)
def test_a_path_outside_with_a_misleading_spelling_counts_as_outside(
    files: DiskFiles, inside: Path, path: str
) -> None:
    (inside / "link").symlink_to(".")
    (inside.parent / "ws-evil").mkdir()

    assert files.outside(path.format(inside=inside)) is not None


@pytest.mark.parametrize(
    "path",
    [
        "ws-evil-notes.md",
        "..hidden/..x",
        "docs/.gitkeep",
        "{inside}/a",
        "{alias}/a",
        "a/./b//c",
    ],
)
def test_unusual_valid_paths_inside_can_be_written_and_read(
    files: DiskFiles, inside: Path, path: str
) -> None:
    alias = inside.parent / "alias"
    alias.symlink_to(inside)
    path = path.format(inside=inside, alias=alias)

    files.write(files.real(path), b"x", expect=NOTHING)

    assert files.outside(path) is None
    assert files.read(files.real(path)) == b"x"


def test_links_that_stay_inside_are_followed(files: DiskFiles, inside: Path) -> None:
    (inside / "a/b").mkdir(parents=True)
    (inside / "a/link").symlink_to("b")
    (inside / "a/b/c.txt").write_bytes(b"hi")

    assert files.read(files.real("a/link/c.txt")) == b"hi"


@pytest.mark.parametrize(
    "path",
    ["a" * 256, "b/" + "ä" * 128, "x/" * 3000 + "y", "a" * 5000, "d/" * 2040 + "e" * 200],
)
def test_a_write_with_a_too_long_name_is_refused_and_creates_nothing(
    files: DiskFiles, inside: Path, path: str
) -> None:
    with pytest.raises(ToolFailed, match="the name is too long"):
        files.write(files.real(path), b"x", expect=NOTHING)

    assert list(inside.iterdir()) == []


def test_a_deep_path_is_written_and_read(files: DiskFiles) -> None:
    path = "d/" * 500 + "f"

    files.write(files.real(path), b"x", expect=NOTHING)

    assert files.read(files.real(path)) == b"x"


def test_a_name_of_255_bytes_can_be_written(files: DiskFiles, inside: Path) -> None:
    files.write(files.real("n" * 255), b"x", expect=NOTHING)

    assert os.listdir(inside) == ["n" * 255]


def test_files_below_an_unlistable_folder_can_be_read_and_written(
    files: DiskFiles, inside: Path
) -> None:
    (inside / "dark/deep").mkdir(parents=True)
    (inside / "dark/deep/f").write_bytes(b"x")
    (inside / "dark").chmod(0o111)
    try:
        assert files.read(files.real("dark/deep/f")) == b"x"
        files.write(files.real("dark/deep/g"), b"y", expect=NOTHING)
    finally:
        (inside / "dark").chmod(0o755)
    assert (inside / "dark/deep/g").read_bytes() == b"y"


@pytest.mark.parametrize("flags", [FOLDER_FLAGS, os.O_RDONLY])
@pytest.mark.parametrize("path", ["..", "a/../..", "/etc", "a/../a"])
def test_a_path_that_leaves_its_folder_cannot_be_opened(
    inside: Path, opening: Opening, path: str, flags: int
) -> None:
    (inside / "a").mkdir()
    top = os.open(inside, FOLDER_FLAGS)
    try:
        with pytest.raises(OSError, match="leaves"):
            opening(top, path, flags)
    finally:
        os.close(top)


def test_magic_links_of_proc_are_not_followed(opening: Opening) -> None:
    top = os.open("/proc/self", FOLDER_FLAGS)
    try:
        for name in ("root", "cwd", "root/etc", "fd/0", "exe"):
            with pytest.raises(OSError, match=r"links|a link|Not a dir") as failure:
                opening(top, name, os.O_RDONLY | os.O_NOFOLLOW)
            assert failure.value.errno
    finally:
        os.close(top)


def test_file_operations_leave_no_descriptor_open(files: DiskFiles, inside: Path) -> None:
    (inside / "link").symlink_to("/")

    def apply() -> None:
        for path in ("a/b/c", "a/b/c", "a/b/c/d", "link", "x" * 300, "."):
            with suppress(ToolFailed):
                files.write(files.real(path), b"x", expect=NOTHING)
            for do in (files.read, files.items, files.kind):
                with suppress(ToolFailed):
                    do(Real(str(inside / path)))

    apply()
    before = os.listdir("/proc/self/fd")
    apply()

    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_files_of_the_own_process_in_proc_are_refused(files: DiskFiles) -> None:
    for path in (
        "/proc/self/environ",
        "/proc/thread-self/environ",
        f"/proc/{os.getpid()}/mem",
    ):
        with pytest.raises(ToolFailed, match="belongs to this program itself"):
            files.read(files.real(path))


def test_a_file_that_a_rule_denies_is_neither_read_nor_listed(
    inside: Path, opening: Opening
) -> None:
    (inside / ".env").write_bytes(b"K=s3cret")
    (inside / "notes.txt").symlink_to(".env")
    (inside / "a").write_bytes(b"")

    def unread(real: Real) -> str:
        return "the rule read_file(**/.env) forbids it" if real.endswith("/.env") else ""

    files = DiskFiles(inside, why_unreadable=unread, opening=opening)

    for path in (".env", "notes.txt", "../ws/.env"):
        with pytest.raises(ToolFailed, match=r"\.env may not be read: the rule read_file"):
            files.read(files.real(path))
    assert [item.name for item in files.items(files.real("."))] == ["a", "notes.txt"]


def test_a_file_can_be_opened_with_and_without_openat2(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    top = os.open(tmp_path, FOLDER_FLAGS)
    try:
        for way in (open_beneath, open_by_walking):
            number = way(top, "a", os.O_RDONLY)
            assert stat.S_ISREG(os.fstat(number).st_mode)
            os.close(number)
    finally:
        os.close(top)


@contextmanager
def swap_links(inside: Path, out: Path) -> Iterator[None]:
    """Another program renames `d` and puts links to `out` in its place, without end."""
    over = threading.Event()
    here, away = inside / "d", inside / "d2"
    here.mkdir(exist_ok=True)

    def race() -> None:
        while not over.is_set():
            with suppress(OSError):
                here.rename(away)
                here.symlink_to(out)
                here.unlink()
            with suppress(OSError):
                away.rename(here)
            # A call may have created the directory again in between.
            if away.exists() and here.is_dir() and not here.is_symlink():
                with suppress(OSError):
                    here.rename(inside / f"d-{time.monotonic_ns()}")

    racer = threading.Thread(target=race)
    racer.start()
    try:
        yield
    finally:
        over.set()
        racer.join()


def write_during_swaps(files: DiskFiles, inside: Path, out: Path, times: int) -> int:
    """Write that often, if it was judged to lie inside; how often it was done."""
    done = 0
    with swap_links(inside, out):
        for number in range(times):
            try:
                real = files.real("d/f")
                if files.outside(str(real)) is None:
                    only = files.only([str(inside / "d/f")])
                    before = b"" if number % 2 else None
                    with suppress(ToolFailed):
                        before = only.read(only.real("d/f"))
                    expect = NOTHING if before is None else digest(before)
                    only.write(only.real("d/f"), b"%d" % number, expect=expect)
                    done += 1
            except ToolFailed:
                continue
    return done


def test_no_race_of_links_writes_outside_the_workspace(
    files: DiskFiles, inside: Path, outside: Path
) -> None:
    rounds, done = 0, 0
    while not done and rounds < 20:  # on a busy machine a round may write nothing at all
        rounds, done = rounds + 1, write_during_swaps(files, inside, outside, 300)

    assert tree(outside) == {}
    assert done > 0


@pytest.mark.slow
def test_no_long_race_of_links_writes_outside_the_workspace(
    files: DiskFiles, inside: Path, outside: Path
) -> None:
    done = write_during_swaps(files, inside, outside, 20_000)

    assert tree(outside) == {}
    assert done > 0  # the scheduler decides how many get through


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
