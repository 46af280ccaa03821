"""Files on disk: hostile names and kinds, atomic writes, and paths outside."""

import os
import socket
import stat
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import ToolFailed
from refold.place.openat import Opening
from refold.place.port import DirectoryEntry, Files
from refold.values.printable_names import escape_name, unescape_name
from tests.place.ports import open_files

pytestmark = pytest.mark.usefixtures("port")

NOTHING = ""
HOSTILE = ["new\nline", "\x1b[31mred", "a\tb", "gpj.\u202eexe", os.fsdecode(b"bad\xff\xfe")]


@pytest.fixture
def files(tmp_path: Path, opening: Opening) -> Files:
    return open_files(tmp_path, opening=opening)


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_a_written_file_is_read_back_and_its_parents_are_created(files: Files) -> None:
    files.write(files.real("deep/er/a.txt"), b"one", expect=NOTHING)

    assert files.read(files.real("deep/er/a.txt")) == b"one"


def test_a_write_leaves_no_temporary_file(files: Files, tmp_path: Path) -> None:
    files.write(files.real("a"), b"one", expect=NOTHING)
    files.write(files.real("a"), b"two", expect=digest(b"one"))

    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").stat().st_nlink == 1


def test_a_write_keeps_the_mode_of_the_file(files: Files, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_bytes(b"one")
    (tmp_path / "run.sh").chmod(0o750)

    files.write(files.real("run.sh"), b"two", expect=digest(b"one"))

    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o750


@pytest.mark.parametrize(
    ("there", "expect", "message"),
    [
        (b"new", digest(b"old"), "changed"),
        (b"new", NOTHING, "came up"),
        (None, "0", "went away"),
    ],
)
def test_a_file_changed_in_the_meantime_is_not_overwritten(
    files: Files, tmp_path: Path, there: bytes | None, expect: str, message: str
) -> None:
    if there is not None:
        (tmp_path / "a").write_bytes(there)

    with pytest.raises(ToolFailed, match=f"a {message} in the meantime"):
        files.write(files.real("a"), b"mine", expect=expect)

    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([there] if there else [])


def test_of_concurrent_writers_of_a_new_file_exactly_one_succeeds(files: Files) -> None:
    chunks = list[bytes]()

    def make(name: str, content: bytes, start: threading.Barrier) -> None:
        start.wait()
        with suppress(ToolFailed):
            files.write(files.real(name), content, expect=NOTHING)
            chunks.append(content)

    for number in range(10):
        name = f"round-{number}"
        start = threading.Barrier(4)
        makers = [
            threading.Thread(target=make, args=(name, bytes([n]), start)) for n in range(4)
        ]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        assert chunks == [files.read(files.real(name))]
        chunks.clear()


def test_a_write_to_a_link_changes_its_target_and_keeps_the_link(
    files: Files, tmp_path: Path
) -> None:
    (tmp_path / "target").write_bytes(b"one")
    (tmp_path / "link").symlink_to("target")

    files.write(files.real("link"), b"two", expect=digest(b"one"))

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"two"


def test_a_file_with_two_hard_links_is_not_written(files: Files, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x")
    os.link(tmp_path / "one", tmp_path / "two")

    with pytest.raises(ToolFailed, match="two has 2 names"):
        files.write(files.real("two"), b"y", expect=digest(b"x"))

    assert (tmp_path / "one").read_bytes() == b"x"


@pytest.mark.parametrize("path", ["pipe", "socket", "/dev/zero", "/dev/tty"])
def test_devices_pipes_and_sockets_are_refused_at_once(
    files: Files, tmp_path: Path, path: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))

        with pytest.raises(ToolFailed, match="device, pipe or socket"):
            files.read(files.real(path))
        with pytest.raises(ToolFailed, match="device, pipe or socket"):
            files.write(files.real(path), b"x", expect=NOTHING)


def test_a_large_file_is_refused_with_its_limit(files: Files, tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(2**20 + 1)

    with pytest.raises(ToolFailed, match="big is larger than 1 MiB"):
        files.read(files.real("big"), at_most=2**20)


def test_a_file_of_proc_without_a_size_is_read(files: Files) -> None:
    assert b"MemTotal" in files.read(files.real("/proc/meminfo"))


@pytest.mark.parametrize("name", HOSTILE)
def test_an_error_shows_a_hostile_file_name_escaped(files: Files, name: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        files.read(files.real(name))

    assert str(failure.value).isprintable()
    assert escape_name(name) in str(failure.value)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_is_found_by_its_displayed_name(
    files: Files, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"found")

    assert files.read(files.real(files.display_name(files.real(name)))) == b"found"
    assert [item.name for item in files.items(files.real("."))] == [name]


def test_an_escape_for_a_plain_character_names_no_file(
    files: Files, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_bytes(b"secret")

    assert files.kind(files.real(r"\x2eenv")) == "nothing"
    assert files.kind(files.real(r"\u002eenv")) == "nothing"


@given(
    st.text(st.characters(codec="utf-8") | st.sampled_from("\n\x1b\x7f\u202e\udc80\udcff"))
)
def test_unescape_name_reverses_escape_name(name: str) -> None:
    assert escape_name(name).isprintable()
    if "\\" not in name:
        assert unescape_name(escape_name(name)) == name


@pytest.mark.parametrize("path", ["", "a\0b", "half\ud83d"])
def test_an_impossible_path_is_refused_with_a_reason(files: Files, path: str) -> None:
    with pytest.raises(ToolFailed, match="cannot be a path"):
        files.real(path)


@pytest.mark.parametrize(
    ("path", "called"),
    [("a/../b", "b"), (".", "."), ("{root}/a", "a"), ("/etc/hosts", "/etc/hosts")],
)
def test_the_displayed_name_of_a_path_is_its_usual_spelling(
    files: Files, tmp_path: Path, path: str, called: str
) -> None:
    assert files.display_name(files.real(path.format(root=tmp_path))) == called


def test_outside_returns_the_link_target_of_a_path_outside_the_workspace(
    tmp_path: Path,
) -> None:
    workspace, other, away = (tmp_path / name for name in ("root", "other", "root-2"))
    for directory in (workspace, other, away):
        directory.mkdir()
    (workspace / "link").symlink_to(away)
    (workspace / "dangling").symlink_to(away / "new.txt")
    files = open_files(workspace, [other])

    outsides = [
        files.outside(path)
        for path in (
            "a",
            "link/a",
            "dangling",
            "../root-2/a",
            str(other / "a"),
            "../root/a",
        )
    ]

    assert outsides == [
        None, str(away / "a"), str(away / "new.txt"), str(away / "a"), None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["~", "~/.bashrc"])
def test_a_path_with_a_shell_tilde_is_refused(files: Files, path: str) -> None:
    with pytest.raises(ToolFailed, match=r"begins with ~.*write the path out, or \./~"):
        files.real(path)


def test_a_file_whose_name_is_shell_syntax_is_found_by_that_name(
    files: Files, tmp_path: Path
) -> None:
    for name in ("~/x", "$HOME/x", "~backup", "-rf", "file:/x", "CON"):
        files.write(files.real(f"./{name}"), b"x", expect=NOTHING)

    display_names = [
        files.display_name(files.real(f"./{n}")) for n in ("~/x", "$HOME/x", "~backup")
    ]
    assert display_names == ["./~/x", "$HOME/x", "~backup"]
    assert all(files.kind(files.real(name)) == "file" for name in display_names)
    assert sorted(os.listdir(tmp_path)) == ["$HOME", "-rf", "CON", "file:", "~", "~backup"]


def test_a_loop_of_links_is_refused_with_a_reason(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(ToolFailed, match="form a loop"):
        files.read(files.real("a"))


def test_a_listing_shows_files_directories_links_and_others_by_kind(
    files: Files, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"123")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("/")
    os.mkfifo(tmp_path / "pipe")

    pairs = [(item.name, item.kind) for item in files.items(files.real("."))]

    assert pairs == [
        ("directory", "directory"), ("file", "file"), ("link", "link"), ("pipe", "other"),
    ]  # fmt: skip
    assert isinstance(files.items(files.real("."))[1], DirectoryEntry)
    assert files.items(files.real("."))[1].size == 3


@pytest.mark.parametrize("path", ["/proc/refold-is-not-allowed/x", "/sys/kernel/x"])
def test_a_write_that_the_system_refuses_gives_its_reason(files: Files, path: str) -> None:
    with pytest.raises(ToolFailed, match=r"Cannot write /\S+: [a-z ,]+\.$"):
        files.write(files.real(path), b"x", expect=NOTHING)


@pytest.mark.skipif(os.geteuid() == 0, reason="optional: root may write everywhere")
def test_the_error_for_a_directory_without_write_permission_names_the_path(
    files: Files, tmp_path: Path
) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)

    with pytest.raises(
        ToolFailed, match="Cannot write closed/a: the system does not permit it"
    ):
        files.write(files.real("closed/a"), b"x", expect=NOTHING)


def test_a_write_below_a_file_is_refused_with_a_reason(
    files: Files, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(ToolFailed, match="Cannot write file/below: a part of the path"):
        files.write(files.real("file/below"), b"x", expect=NOTHING)


def test_a_file_swapped_with_a_link_during_reads_reveals_nothing_outside(
    tmp_path: Path,
) -> None:
    """Another thread swaps the file for a link to the outside, as fast as it can."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (inside / "a").write_bytes(b"mine")
    files, over = open_files(inside), threading.Event()

    def swap() -> None:
        while not over.is_set():
            (inside / "link").symlink_to(outside / "secret")
            (inside / "link").replace(inside / "a")
            (inside / "plain").write_bytes(b"mine")
            (inside / "plain").replace(inside / "a")

    racer = threading.Thread(target=swap)
    racer.start()
    chunks = set[bytes]()
    try:
        for _ in range(300):
            try:
                real = files.real("a")
                if files.outside(real) is None:
                    chunks.add(files.read(real))
            except ToolFailed:
                continue
    finally:
        over.set()
        racer.join()

    assert chunks <= {b"mine"}
